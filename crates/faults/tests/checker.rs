//! Tests that the checker finds the violations it should find, and no others.

use std::collections::BTreeSet;

use bunraku_faults::checker::check;
use bunraku_faults::history::{
    AuditTrail, AuditedAction, Call, CallOutcome, Change, History, Micros, NetworkCut, NodeRun,
    Operation, RunEnd, Value,
};

fn value(text: &str) -> Value {
    (!text.is_empty()).then(|| text.to_owned())
}

fn seconds(time: u64) -> Micros {
    time * 1_000_000
}

fn operation(client: usize, begun: u64, ended: u64, call: Call, outcome: CallOutcome) -> Operation {
    Operation {
        client,
        server: Some(client),
        begun: seconds(begun),
        ended: seconds(ended),
        call,
        outcome,
        request: None,
    }
}

fn read(client: usize, begun: u64, ended: u64, text: &str) -> Operation {
    let call = Call::Read {
        key: "k".to_owned(),
        value: value(text),
    };
    operation(client, begun, ended, call, CallOutcome::Done)
}

fn write(client: usize, begun: u64, ended: u64, text: &str, outcome: CallOutcome) -> Operation {
    let call = Call::Write {
        key: "k".to_owned(),
        value: text.to_owned(),
    };
    operation(client, begun, ended, call, outcome)
}

fn swap(
    client: usize,
    begun: u64,
    ended: u64,
    from: &str,
    to: &str,
    outcome: CallOutcome,
) -> Operation {
    let call = Call::Swap {
        key: "k".to_owned(),
        from: value(from),
        to: to.to_owned(),
    };
    operation(client, begun, ended, call, outcome)
}

fn acquire(client: usize, begun: u64, ended: u64, token: u64) -> Operation {
    let call = Call::Acquire {
        lock: "l".to_owned(),
        session: format!("session-{client}-{begun}"),
        lease: seconds(5),
        token: Some(token),
    };
    operation(client, begun, ended, call, CallOutcome::Done)
}

fn release(client: usize, begun: u64, ended: u64, token: u64) -> Operation {
    let lock = "l".to_owned();
    let call = Call::Release { lock, token };
    operation(client, begun, ended, call, CallOutcome::Unknown)
}

fn claim(client: usize, begun: u64, ended: u64, token: u64) -> Operation {
    let (app, lease, token) = ("a".to_owned(), seconds(5), Some(token));
    let call = Call::Claim { app, lease, token };
    operation(client, begun, ended, call, CallOutcome::Done)
}

fn finish(client: usize, begun: u64, ended: u64, token: u64) -> Operation {
    let app = "a".to_owned();
    let call = Call::Finish { app, token };
    operation(client, begun, ended, call, CallOutcome::Done)
}

fn history(operations: Vec<Operation>) -> History {
    History {
        operations,
        ..History::default()
    }
}

fn accepts(operations: Vec<Operation>) {
    assert_eq!(check(&history(operations)), [""; 0]);
}

fn rejects(operations: Vec<Operation>, about: &str) {
    wrong_in(&history(operations), about);
}

fn wrong_in(history: &History, about: &str) {
    let found = check(history);
    assert!(
        found.iter().any(|it| it.contains(about)),
        "`{about}` is not found: {found:?}"
    );
}

#[test]
fn a_register_that_could_be_one_is_fine() {
    accepts(vec![
        swap(0, 0, 1, "", "a", CallOutcome::Done),
        read(1, 0, 3, ""),
        swap(1, 2, 4, "a", "b", CallOutcome::Done),
        // This swap happened …
        swap(0, 5, 6, "b", "c", CallOutcome::Unknown),
        read(1, 7, 8, "c"),
        // … and this one did not, or not yet.
        swap(0, 9, 9, "c", "d", CallOutcome::Unknown),
        read(1, 10, 11, "c"),
        swap(2, 10, 11, "x", "y", CallOutcome::Refused),
        read(1, 12, 13, "d"),
    ]);
}

#[test]
fn writes_that_overlap_may_be_seen_in_either_order() {
    accepts(vec![
        write(0, 0, 10, "a", CallOutcome::Done),
        write(1, 0, 10, "b", CallOutcome::Done),
        write(2, 0, 10, "c", CallOutcome::Unknown),
        read(3, 1, 2, "c"),
        read(3, 3, 4, "a"),
        read(4, 5, 6, "b"),
    ]);
}

#[test]
fn histories_that_no_register_has_are_found() {
    let (done, refused, unknown) = (
        CallOutcome::Done,
        CallOutcome::Refused,
        CallOutcome::Unknown,
    );
    for (what, operations) in [
        (
            "an acknowledged write is lost",
            vec![
                swap(0, 0, 1, "", "a", done),
                swap(0, 2, 3, "a", "b", done),
                read(1, 4, 5, "a"),
            ],
        ),
        (
            "two swaps have the same old value",
            vec![
                swap(0, 0, 1, "", "a", done),
                swap(0, 2, 3, "a", "b", done),
                swap(1, 2, 3, "a", "c", done),
            ],
        ),
        (
            "a swap is reported as refused although it would have taken place",
            vec![
                swap(0, 0, 1, "", "a", done),
                swap(1, 2, 3, "a", "b", refused),
                read(0, 4, 5, "a"),
            ],
        ),
        (
            "a write that took place is reported as refused",
            vec![write(0, 0, 1, "a", refused), read(1, 2, 3, "a")],
        ),
        (
            "a read returns the past",
            vec![
                write(0, 0, 1, "a", done),
                write(0, 2, 3, "b", done),
                read(1, 4, 5, "b"),
                read(2, 6, 7, "a"),
            ],
        ),
        (
            "a write of unknown outcome comes and goes",
            vec![
                write(0, 0, 1, "a", done),
                write(1, 2, 3, "b", unknown),
                read(2, 4, 5, "b"),
                read(2, 6, 7, "a"),
            ],
        ),
    ] {
        let found = check(&history(operations));
        let is_found = found.iter().any(|problem| problem.contains("register k"));
        assert!(is_found, "{what}: {found:?}");
    }
}

#[test]
fn a_long_history_with_many_unknown_writes_is_judged_quickly() {
    let mut operations = Vec::new();
    let mut before = String::new();
    for number in 0..2_000_u64 {
        let to = format!("v{number}");
        let outcome = match number % 5 {
            0 => CallOutcome::Unknown,
            _ => CallOutcome::Done,
        };
        operations.push(swap(0, number * 2, number * 2 + 3, &before, &to, outcome));
        operations.push(read(1, number * 2 + 3, number * 2 + 4, &to));
        let never = format!("never-{number}");
        operations.push(swap(
            2,
            number * 2,
            number * 2 + 1,
            "x",
            &never,
            CallOutcome::Unknown,
        ));
        before = to;
    }
    // Each is seen before the next is requested: the times above overlap by one.
    accepts(operations.clone());
    operations.push(read(3, 5_000, 5_001, "v0"));
    rejects(operations, "register k");
}

#[test]
fn a_lock_is_held_by_one_until_it_is_released_or_its_lease_ends() {
    accepts(vec![
        acquire(0, 0, 1, 1),
        release(0, 2, 9, 1),
        acquire(1, 1, 3, 2),
        acquire(2, 6, 7, 3),
    ]);
    rejects(
        vec![acquire(0, 0, 1, 1), acquire(1, 2, 3, 2)],
        "held by clients",
    );
}

#[test]
fn a_token_that_is_given_twice_or_falls_is_found() {
    rejects(
        vec![acquire(0, 0, 1, 4), acquire(1, 8, 9, 4)],
        "token 4 was given to clients",
    );
    rejects(
        vec![acquire(0, 0, 1, 4), acquire(1, 8, 9, 3)],
        "token 3 at 9.000 s after token 4",
    );
}

#[test]
fn a_thing_done_once_is_fine_and_done_twice_is_found() {
    let mut one = history(vec![
        claim(0, 0, 1, 1),
        claim(1, 6, 7, 2),
        finish(1, 8, 9, 2),
    ]);
    one.end.done.insert("a".to_owned(), Some(2));
    assert_eq!(check(&one), [""; 0]);
    one.operations.push(claim(2, 10, 11, 3));
    wrong_in(&one, "claimed again");
    one.operations.push(finish(2, 12, 13, 3));
    wrong_in(&one, "done 2 times");
}

#[test]
fn two_claims_at_a_time_are_found() {
    rejects(vec![claim(0, 0, 1, 1), claim(1, 2, 3, 2)], "same time");
    rejects(vec![claim(0, 0, 1, 1), claim(1, 2, 3, 1)], "granted twice");
}

#[test]
fn a_thing_that_was_done_and_is_forgotten_is_found() {
    let mut one = history(vec![claim(0, 0, 1, 1), finish(0, 2, 3, 1)]);
    wrong_in(&one, "in the end");
    one.end.done.insert("a".to_owned(), None);
    wrong_in(&one, "in the end");
}

fn fired() -> History {
    let call = Call::Fire {
        trigger: "t".to_owned(),
        firing: "f".to_owned(),
        hosts: vec!["n1".to_owned(), "n2".to_owned()],
    };
    history(vec![operation(0, 0, 1, call, CallOutcome::Done)])
}

fn node_run(node: &str, id: &str, begun: u64, run: Option<&str>) -> NodeRun {
    NodeRun {
        node: node.to_owned(),
        id: id.to_owned(),
        begun: seconds(begun),
        ended: seconds(begun + 1),
        firings: BTreeSet::from(["f".to_owned()]),
        more: 0,
        run: run.map(str::to_owned),
    }
}

#[test]
fn a_trigger_that_neither_ran_nor_was_reported_is_found() {
    let mut one = fired();
    one.node_runs.push(node_run("n1", "1", 2, None));
    wrong_in(&one, "n2 neither ran nor was reported");
    one.end.reported.insert(("t".to_owned(), "n2".to_owned()));
    assert_eq!(check(&one), [""; 0]);
}

#[test]
fn a_run_that_only_counts_a_firing_served_it_if_it_came_later_and_counts_enough() {
    let counting = |begun: u64, more: u64| NodeRun {
        firings: BTreeSet::new(),
        more,
        ..node_run("n2", "2", begun, None)
    };
    let mut one = fired();
    one.node_runs.push(node_run("n1", "1", 2, None));
    one.node_runs.push(counting(2, 1));
    assert_eq!(check(&one), [""; 0]);
    let again = one.operations[0].clone();
    let Call::Fire { trigger, hosts, .. } = again.call else {
        panic!("it fires")
    };
    let call = Call::Fire {
        trigger,
        firing: "g".to_owned(),
        hosts: hosts[1..].to_vec(),
    };
    one.operations
        .push(operation(0, 0, 1, call.clone(), CallOutcome::Done));
    wrong_in(&one, "n2 neither ran nor was reported");
    one.node_runs[1].more = 2;
    assert_eq!(check(&one), [""; 0]);
    one.operations[1] = operation(0, 3, 4, call, CallOutcome::Done);
    wrong_in(&one, "n2 neither ran nor was reported");
}

fn ordered(first: u64, second: u64) -> History {
    let run = Some("r".to_owned());
    let mut one = history(vec![operation(
        0,
        0,
        1,
        Call::StartRun { run },
        CallOutcome::Done,
    )]);
    one.order = vec![("n1".to_owned(), "n2".to_owned())];
    one.node_runs = vec![
        node_run("n1", "1", first, Some("r")),
        node_run("n2", "2", second, Some("r")),
    ];
    one.end
        .runs
        .insert("r".to_owned(), RunEnd { succeeded: true });
    one
}

#[test]
fn an_ordered_run_in_order_is_fine_and_out_of_order_is_found() {
    assert_eq!(check(&ordered(2, 4)), [""; 0]);
    wrong_in(&ordered(4, 2), "before n1 had ended");
}

#[test]
fn a_node_run_that_took_place_twice_or_never_is_found() {
    let mut one = ordered(2, 4);
    let again = one.node_runs[0].clone();
    one.node_runs.push(again);
    wrong_in(&one, "node run 1 took place 2 times");
    let mut one = ordered(2, 4);
    one.node_runs.pop();
    wrong_in(&one, "n2 never ran");
}

#[test]
fn a_run_that_was_acknowledged_and_forgotten_is_found() {
    let mut one = ordered(2, 4);
    one.end.runs.clear();
    wrong_in(&one, "never ended");
}

fn cut() -> NetworkCut {
    NetworkCut {
        begun: seconds(10),
        ended: seconds(20),
        sides: vec![BTreeSet::from([0, 1]), BTreeSet::from([2, 3, 4])],
    }
}

#[test]
fn two_sides_of_a_cut_that_decide_are_found() {
    let mut one = history(vec![
        write(0, 11, 12, "a", CallOutcome::Done),
        write(2, 13, 14, "b", CallOutcome::Done),
    ]);
    assert_eq!(check(&one), [""; 0]);
    one.cuts.push(cut());
    wrong_in(&one, "more than one side decided");
}

#[test]
fn a_read_or_an_operation_from_before_a_cut_does_not_count_as_a_decision() {
    let mut one = history(vec![
        write(0, 9, 12, "a", CallOutcome::Done),
        read(0, 13, 14, "a"),
        write(1, 13, 14, "c", CallOutcome::Unknown),
        write(2, 13, 16, "b", CallOutcome::Done),
        write(0, 19, 21, "d", CallOutcome::Done),
    ]);
    one.cuts.push(cut());
    assert_eq!(check(&one), [""; 0]);
}

#[test]
fn a_failover_on_the_other_side_of_a_cut_is_found() {
    let mut one = history(vec![write(2, 13, 14, "b", CallOutcome::Done)]);
    one.cuts.push(cut());
    one.end.changes.push(Change {
        at: seconds(15),
        by: 1,
        what: "`s3` removed from the datastores".to_owned(),
    });
    wrong_in(&one, "a change of the datastores");
}

#[test]
fn datastores_that_hold_different_data_are_found() {
    let mut one = History::default();
    one.end.hashes = [("s1".to_owned(), 1), ("s2".to_owned(), 1)].into();
    assert_eq!(check(&one), [""; 0]);
    one.end.hashes.insert("s3".to_owned(), 2);
    wrong_in(&one, "different data");
}

/// One request, which was acknowledged, and its record.
fn audited(outcomes: &[&str]) -> History {
    let mut one = history(vec![write(0, 1, 2, "a", CallOutcome::Done)]);
    one.operations[0].request = Some("c0-1".to_owned());
    let records = outcomes
        .iter()
        .zip(1..)
        .map(|(outcome, number)| AuditedAction {
            number,
            id: "1".to_owned(),
            who: "operator.s1".to_owned(),
            role: "operator".to_owned(),
            request: Some("c0-1".to_owned()),
            action: "disable-node".to_owned(),
            object: Some("node/k".to_owned()),
            outcome: (*outcome).to_owned(),
        });
    one.end.audit = Some(AuditTrail {
        broken: None,
        servers: BTreeSet::from(["s1".to_owned()]),
        records: records.collect(),
    });
    one
}

fn records(one: &mut History) -> &mut Vec<AuditedAction> {
    &mut one.end.audit.as_mut().expect("a log").records
}

#[test]
fn an_acknowledged_change_that_the_audit_log_lacks_is_found() {
    assert_eq!(check(&audited(&["succeeded"])), [""; 0]);
    wrong_in(&audited(&[]), "the log does not contain it");
    wrong_in(&audited(&["unknown"]), "and the log says");
    let mut other = audited(&["succeeded"]);
    records(&mut other)[0].object = Some("node/j".to_owned());
    wrong_in(&other, "and not about disable-node");
}

#[test]
fn a_change_that_is_in_the_audit_log_twice_is_found_unless_its_outcome_was_late() {
    assert_eq!(check(&audited(&["unknown", "succeeded"])), [""; 0]);
    wrong_in(&audited(&["succeeded", "succeeded"]), "has the outcomes");
    wrong_in(&audited(&["unknown", "unknown"]), "has the outcomes");
    let mut twice = audited(&["succeeded", "succeeded"]);
    records(&mut twice)[1].id = "2".to_owned();
    wrong_in(&twice, "recorded 2 times");
}

#[test]
fn a_record_of_something_that_nobody_did_is_found() {
    let mut one = audited(&["succeeded"]);
    let mut invented = records(&mut one)[0].clone();
    invented.request = Some("another".to_owned());
    records(&mut one).push(invented.clone());
    wrong_in(&one, "and nobody did");
    records(&mut one)[1].outcome = "refused".to_owned();
    assert_eq!(check(&one), [""; 0], "a refused request changed nothing");
    invented.role = "server".to_owned();
    records(&mut one)[1] = invented;
    wrong_in(&one, "operator.s1 did disable-node");
}

#[test]
fn a_refused_change_that_the_audit_log_calls_successful_is_found() {
    let mut one = audited(&["succeeded"]);
    one.operations[0].outcome = CallOutcome::Refused;
    wrong_in(&one, "it was refused, and the log says that it succeeded");
    records(&mut one).clear();
    assert_eq!(check(&one), [""; 0]);
}

#[test]
fn a_run_whose_end_is_not_in_the_audit_log_once_is_found() {
    let mut one = ordered(2, 4);
    one.end.audit = Some(AuditTrail::default());
    wrong_in(&one, "the end of run r is recorded 0 times");
}

#[test]
fn a_broken_audit_chain_is_found() {
    let mut one = audited(&["succeeded"]);
    let trail = one.end.audit.as_mut().expect("a log");
    trail.broken = Some("record 3 follows record 1".to_owned());
    wrong_in(&one, "the log is not intact");
}
