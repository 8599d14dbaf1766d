//! Fleets that survive all faults, seed by seed.

use bunraku_sim::{Bug, KillPoint, Moment, SimulationOptions, simulate};

/// Returns how many seeds each test tries; `BUNRAKU_SEEDS=3000` asks for more.
fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("BUNRAKU_SEEDS").ok();
    asked.map_or(usual, |text| {
        text.parse().expect("BUNRAKU_SEEDS is a number")
    })
}

/// Returns the seeds to try; `BUNRAKU_SEED=17` replays one.
fn range(first: u64, usual: u64) -> std::ops::Range<u64> {
    match std::env::var("BUNRAKU_SEED") {
        Ok(text) => {
            let seed = text.parse().expect("BUNRAKU_SEED is a number");
            seed..seed + 1
        }
        Err(_) => first..first + seeds(usual),
    }
}

fn small(seed: u64) -> SimulationOptions {
    SimulationOptions {
        seed,
        agents: 1 + (seed % 2) as usize,
        rounds: 2,
        servers: 2,
        faults: true,
        auto_release: true,
        kill_server: None,
        kill_agent: None,
        cues: true,
        ordered_runs: 1,
        bug: None,
    }
}

/// A plan with one node, from its first facts to its report, without faults.
fn alone(seed: u64) -> SimulationOptions {
    SimulationOptions {
        agents: 1,
        rounds: 1,
        servers: 1,
        faults: false,
        cues: false,
        ordered_runs: 0,
        ..small(seed)
    }
}

fn try_all(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> SimulationOptions) {
    let (mut acknowledged, mut targets, mut events) = (0, 0, 0);
    let (mut firings, mut reactions, mut steps, mut changes) = (0, 0, 0, 0);
    for seed in seeds {
        let seen = simulate(plan(seed));
        acknowledged += seen.checker.acknowledgements();
        targets += seen.checker.targets_seen();
        events += seen.checker.events_seen();
        firings += seen.cues.firings();
        reactions += seen.cues.reactions();
        steps += seen.cues.steps();
        changes += seen.audit.acknowledgements();
    }
    assert!(acknowledged > 0, "nothing was ever acknowledged");
    assert!(targets > 0, "nobody was ever given a target");
    assert!(events > 0, "nothing was ever reported");
    assert!(firings > 0, "no trigger ever came to a node");
    assert!(reactions > 0, "the reactor never fired");
    assert!(steps > 0, "no ordered run ever began");
    assert!(changes > 0, "no change was ever acknowledged");
}

#[test]
fn with_killed_servers_and_agents_and_a_bad_network_nothing_is_lost_or_doubled() {
    try_all(range(0, 200), small);
}

#[test]
fn with_one_server_that_is_killed_again_and_again_it_holds_too() {
    try_all(range(100_000, 200), |seed| SimulationOptions {
        servers: 1,
        ..small(seed)
    });
}

#[test]
fn with_manual_releases_no_node_gets_an_unreleased_catalog() {
    try_all(range(200_000, 200), |seed| SimulationOptions {
        auto_release: false,
        ..small(seed)
    });
}

/// A plan with several nodes in order.
fn theatre(seed: u64) -> SimulationOptions {
    SimulationOptions {
        agents: 4,
        servers: 2 + (seed % 2) as usize,
        ordered_runs: 2,
        ..small(seed)
    }
}

#[test]
fn ordered_runs_triggers_and_reactors_survive_killed_servers_and_agents() {
    try_all(range(300_000, 40), theatre);
}

#[test]
fn a_server_may_die_at_every_call_to_its_store_between_facts_and_report() {
    let calls = simulate(alone(1)).store_calls;
    assert!(calls > 50, "{calls}");
    for step in 0..calls {
        for when in [KillPoint::Before, KillPoint::After] {
            let moment = Moment { step, when };
            eprintln!("the server dies at {moment:?}");
            simulate(SimulationOptions {
                kill_server: Some(moment),
                ..alone(1)
            });
        }
    }
}

/// Only at every nth call, because an ordered run of three nodes makes very many calls.
#[test]
fn a_server_may_die_at_calls_to_its_store_during_an_ordered_run_with_triggers() {
    let plan = |seed, kill_server| SimulationOptions {
        agents: 3,
        cues: true,
        ordered_runs: 1,
        kill_server,
        ..alone(seed)
    };
    // A resource that fails, as some do, ends the run of a seed early.
    let whole = |seed: &u64| simulate(plan(*seed, None)).cues.steps() >= 3;
    let seed = (3..50).find(whole).expect("a run of all three nodes");
    let seen = simulate(plan(seed, None));
    for step in (0..seen.store_calls).step_by(seen.store_calls as usize / 40) {
        for when in [KillPoint::Before, KillPoint::After] {
            let moment = Moment { step, when };
            eprintln!("the server dies at {moment:?}");
            simulate(plan(seed, Some(moment)));
        }
    }
}

#[test]
fn an_agent_may_die_at_every_step_of_its_run_and_of_its_report() {
    let steps = simulate(alone(2)).agent_steps;
    assert!(steps > 8, "{steps}");
    for step in 0..steps {
        let moment = Moment {
            step,
            when: KillPoint::Before,
        };
        eprintln!("the agent dies at {moment:?}");
        simulate(SimulationOptions {
            kill_agent: Some(moment),
            ..alone(2)
        });
    }
}

/// Returns the checker's message for the first of these plans that violates an invariant.
fn found(mut plans: impl Iterator<Item = SimulationOptions>) -> Option<String> {
    plans.find_map(|plan| {
        let caught = std::panic::catch_unwind(|| simulate(plan)).err()?;
        let text = caught.downcast_ref::<String>().cloned();
        Some(text.unwrap_or_default())
    })
}

#[test]
fn events_that_are_taken_whatever_their_number_are_found() {
    let plans = (0..700).map(|seed| SimulationOptions {
        bug: Some(Bug::NumbersIgnored),
        cues: false,
        ordered_runs: 0,
        ..small(seed)
    });
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("run "), "{said}");
}

/// Chance rarely kills a server between its answer and its store, so the test tries
/// every call to the store, the last ones first: those belong to the report.
#[test]
fn events_that_are_acknowledged_before_they_are_stored_are_found() {
    let plans = (1..=5).flat_map(|seed| {
        let planted = SimulationOptions {
            bug: Some(Bug::AnsweredTooEarly),
            ..alone(seed)
        };
        let calls = simulate(planted.clone()).store_calls;
        (0..calls).rev().map(move |step| SimulationOptions {
            kill_server: Some(Moment {
                step,
                when: KillPoint::Before,
            }),
            ..planted.clone()
        })
    });
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("run "), "{said}");
}

#[test]
fn triggers_that_are_acknowledged_and_not_fired_are_found() {
    let plans = (0..50).map(|seed| SimulationOptions {
        bug: Some(Bug::FiringForgotten),
        ..theatre(seed)
    });
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("never came to"), "{said}");
}

#[test]
fn firings_that_start_a_run_each_time_their_command_comes_are_found() {
    let plans = (0..1_000).map(|seed| SimulationOptions {
        bug: Some(Bug::RequestsForgotten),
        ordered_runs: 0,
        ..theatre(seed)
    });
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("and was fired"), "{said}");
}

#[test]
fn an_ordered_run_that_ignores_its_order_is_found() {
    let plans = (0..50).map(|seed| SimulationOptions {
        bug: Some(Bug::OrderIgnored),
        ..theatre(seed)
    });
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("are done before it"), "{said}");
}

#[test]
fn changes_that_are_recorded_after_they_were_made_are_found() {
    let plan = |kill_server| SimulationOptions {
        bug: Some(Bug::RecordedTooLate),
        kill_server,
        ..alone(1)
    };
    let calls = simulate(plan(None)).store_calls;
    let moments = (0..calls).flat_map(|step| {
        [KillPoint::Before, KillPoint::After].map(|when| Some(Moment { step, when }))
    });
    let plans = moments.map(plan);
    let said = found(plans).expect("the checker finds it");
    assert!(said.contains("one record per change"), "{said}");
}

#[test]
fn a_thousand_agents_are_served_by_three_servers_that_come_and_go() {
    let seen = simulate(SimulationOptions {
        agents: 1_000,
        rounds: 1,
        servers: 3,
        cues: false,
        ..small(1)
    });
    assert!(seen.checker.acknowledgements() > 800);
    assert!(seen.compiles >= 800);
    assert!(seen.checker.events_seen() > 1_000);
}

#[test]
fn without_faults_all_of_it_comes_to_rest() {
    let seen = simulate(SimulationOptions {
        agents: 20,
        rounds: 10,
        servers: 1,
        faults: false,
        ..small(7)
    });
    assert!(seen.checker.acknowledgements() > 100);
    // Facts are submitted 200 times and differ in some 60 % of them; a code push
    // compiles each node once. Repeated requests are compiled once.
    assert!(seen.compiles > 20, "{}", seen.compiles);
}
