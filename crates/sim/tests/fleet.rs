//! Fleets that live through everything, seed by seed.

use bunraku_sim::{Plan, simulate};

/// How many seeds each test tries; `BUNRAKU_SEEDS=3000` asks for more.
fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("BUNRAKU_SEEDS").ok();
    asked.map_or(usual, |text| {
        text.parse().expect("BUNRAKU_SEEDS is a number")
    })
}

fn small(seed: u64) -> Plan {
    Plan {
        seed,
        agents: 3,
        rounds: 4,
        servers: 2,
        faults: true,
        auto_release: true,
    }
}

fn try_all(first: u64, count: u64, plan: impl Fn(u64) -> Plan) {
    let (mut acknowledged, mut targets) = (0, 0);
    for seed in first..first + count {
        let (checker, _) = simulate(plan(seed));
        acknowledged += checker.acknowledgements();
        targets += checker.targets_seen();
    }
    assert!(acknowledged > 0, "nothing was ever acknowledged");
    assert!(targets > 0, "nobody was ever given a target");
}

#[test]
fn with_killed_servers_and_a_bad_network_nothing_acknowledged_is_lost() {
    try_all(0, seeds(40), small);
}

#[test]
fn with_one_server_that_is_killed_again_and_again_it_holds_too() {
    try_all(100_000, seeds(40), |seed| Plan {
        servers: 1,
        ..small(seed)
    });
}

#[test]
fn with_releases_by_hand_nobody_is_given_what_nobody_released() {
    try_all(200_000, seeds(40), |seed| Plan {
        auto_release: false,
        ..small(seed)
    });
}

#[test]
fn a_thousand_agents_are_served_by_three_servers_that_come_and_go() {
    let (checker, compiles) = simulate(Plan {
        seed: 1,
        agents: 1_000,
        rounds: 2,
        servers: 3,
        faults: true,
        auto_release: true,
    });
    assert!(checker.acknowledgements() > 1_000);
    assert!(compiles >= 1_000);
}

#[test]
fn without_faults_all_of_it_comes_to_rest() {
    let (checker, compiles) = simulate(Plan {
        seed: 7,
        agents: 20,
        rounds: 10,
        servers: 1,
        faults: false,
        auto_release: true,
    });
    assert!(checker.acknowledgements() > 100);
    // Facts are submitted 200 times and differ in some 60 % of them; a push of
    // code compiles each node once. What is asked for again is done once.
    assert!(compiles > 20, "{compiles}");
}
