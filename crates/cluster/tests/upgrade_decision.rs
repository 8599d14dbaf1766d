//! Tests the decision whether a datastore is restarted for a new etcd.

use bunraku_cluster::failover::{
    Action, Datastore, DatastorePlan, FailoverInput, Limits, Liveness, NextStep, Program, Programs,
    Server, WaitReason, next,
};
use bunraku_model::NodeName;
use jiff::{SignedDuration, Timestamp};

fn name(number: usize) -> NodeName {
    NodeName::new(format!("server-{number}")).expect("a name")
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn etcd(version: &str) -> Option<Program> {
    Some(Program {
        content: format!("hash of {version}"),
        version: Some(version.to_owned()),
    })
}

/// Datastores that run one etcd while another one is installed.
fn input(count: usize, running: &str, installed: &str) -> FailoverInput {
    let url = |number| format!("https://10.0.0.{number}:8153");
    let servers = (0..count).map(|number| Server {
        name: name(number),
        state: Liveness::Alive,
        since: now(),
        eligible: true,
        draining: false,
        peer_url: url(number),
        ordered: Some(number as u64),
        restart: 0,
        programs: Programs {
            running: etcd(running),
            installed: etcd(installed),
        },
    });
    let datastores = (0..count).map(|number| Datastore {
        id: number as u64,
        peer_url: url(number),
        learner: false,
        healthy: true,
        failing_since: None,
    });
    FailoverInput {
        wanted: count,
        servers: servers.collect(),
        datastores: datastores.collect(),
    }
}

fn decide(plan: &DatastorePlan, seen: &FailoverInput, at: Timestamp) -> NextStep {
    next(plan, seen, &Limits::default(), at)
}

/// Returns the plan that is stored now.
fn stored(plan: &DatastorePlan, seen: &FailoverInput, at: Timestamp) -> DatastorePlan {
    match decide(plan, seen, at) {
        NextStep::Store(plan) => plan,
        other => panic!("no plan: {other:?}"),
    }
}

fn reason(seen: &FailoverInput) -> String {
    match decide(&DatastorePlan::default(), seen, now()) {
        NextStep::Wait(WaitReason::Upgrade { why, .. }) => why,
        other => panic!("it does not wait: {other:?}"),
    }
}

#[test]
fn datastores_are_restarted_one_at_a_time_with_a_pause() {
    let mut seen = input(3, "3.4.23", "3.5.9");
    let mut plan = DatastorePlan::default();
    let mut at = now();
    for number in 0..3 {
        plan = stored(&plan, &seen, at);
        let change = plan.current.clone().expect("one change");
        assert_eq!(change.into, name(number));
        let restart = Action::Restart {
            server: name(number),
            number: change.number,
        };
        assert_eq!(decide(&plan, &seen, at), NextStep::Act(restart));
        seen.servers[number].restart = change.number;
        seen.datastores[number].healthy = false;
        seen.servers[number].programs.running = None;
        let waits = NextStep::Wait(WaitReason::Starting(name(number)));
        assert_eq!(decide(&plan, &seen, at), waits);
        // It runs, but does not answer yet.
        seen.servers[number].programs.running = etcd("3.5.9");
        assert_eq!(decide(&plan, &seen, at), waits);
        seen.datastores[number].healthy = true;
        plan = stored(&plan, &seen, at);
        assert_eq!(plan.current, None);
        if number < 2 {
            assert_eq!(decide(&plan, &seen, at), NextStep::Wait(WaitReason::Pause));
        }
        at += SignedDuration::from_secs(11);
    }
    assert_eq!(
        decide(&plan, &seen, at),
        NextStep::Wait(WaitReason::Content)
    );
}

#[test]
fn no_datastore_is_restarted_while_any_is_unhealthy() {
    let mut ill = input(3, "3.4.23", "3.4.30");
    ill.datastores[2].healthy = false;
    assert!(matches!(
        decide(&DatastorePlan::default(), &ill, now()),
        NextStep::Wait(WaitReason::Grace(_))
    ));
    let mut suspect = input(3, "3.4.23", "3.4.30");
    suspect.servers[2].state = Liveness::Suspect;
    assert_eq!(reason(&suspect), "all datastores must be healthy first");
    // It was decided, and then another one failed.
    let plan = stored(
        &DatastorePlan::default(),
        &input(3, "3.4.23", "3.4.30"),
        now(),
    );
    assert_eq!(stored(&plan, &ill, now()).current, None);
}

#[test]
fn the_only_datastore_is_left_to_its_operator() {
    let why = reason(&input(1, "3.4.23", "3.4.30"));
    assert!(
        why.contains("the data would be unavailable meanwhile"),
        "{why}"
    );
}

#[test]
fn etcd_goes_up_by_one_minor_version_and_never_back() {
    for (running, installed, expected) in [
        ("3.5.9", "3.4.30", "etcd cannot be downgraded from 3.5.9"),
        ("3.4.23", "3.6.0", "etcd 3.4 must be upgraded to 3.5 first"),
        ("3.4.23", "4.0.0", "etcd 3.4 must be upgraded to 3.5 first"),
    ] {
        assert_eq!(reason(&input(3, running, installed)), expected);
    }
    for (running, installed) in [("3.4.23", "3.5.0"), ("3.4.30", "3.4.23")] {
        let plan = stored(
            &DatastorePlan::default(),
            &input(3, running, installed),
            now(),
        );
        assert!(plan.current.is_some(), "{running} to {installed}");
    }
    // One that lags behind holds the others back.
    let mut mixed = input(3, "3.5.9", "3.6.0");
    mixed.servers[2].programs.running = etcd("3.4.23");
    mixed.servers[2].programs.installed = etcd("3.4.23");
    assert_eq!(reason(&mixed), "etcd 3.4 must be upgraded to 3.5 first");
    mixed.servers[2].programs = Programs::default();
    assert_eq!(reason(&mixed), "the version that server-2 runs is unknown");
    let mut broken = input(3, "3.4.23", "3.4.30");
    for server in &mut broken.servers {
        let installed = server.programs.installed.as_mut().expect("one");
        installed.version = None;
    }
    assert_eq!(
        reason(&broken),
        "it cannot be run, or does not report its version"
    );
}

#[test]
fn a_program_with_which_one_did_not_come_back_is_not_tried_on_another() {
    let mut seen = input(3, "3.4.23", "3.4.30");
    let plan = stored(&DatastorePlan::default(), &seen, now());
    let number = plan.current.as_ref().expect("a change").number;
    seen.servers[0].restart = number;
    seen.servers[0].programs.running = None;
    seen.datastores[0].healthy = false;
    let late = now() + SignedDuration::from_secs(61);
    let plan = stored(&plan, &seen, late);
    assert_eq!(plan.current, None);
    // The old package is installed again, and the datastore is healthy again.
    seen.datastores[0].healthy = true;
    seen.servers[0].programs.running = etcd("3.4.23");
    seen.servers[0].programs.installed = etcd("3.4.23");
    let waits = decide(&plan, &seen, late + SignedDuration::from_hours(1));
    match waits {
        NextStep::Wait(WaitReason::Upgrade { why, .. }) => {
            assert_eq!(why, "a datastore did not start with it");
        }
        other => panic!("{other:?}"),
    }
    // A newer one is tried.
    seen.servers[1].programs.installed = etcd("3.4.31");
    let plan = stored(&plan, &seen, late + SignedDuration::from_hours(1));
    assert_eq!(plan.current.expect("a change").into, name(1));
}
