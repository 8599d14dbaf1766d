//! Safe rollout: canaries with a soak time and checks, batches by a fact, and rules that stop a run.
//! Each script is recovered from a cut at every entry of its log.

use crate::run_behaviour::transcript;
use crate::support::{after, plan, run_id};
use bunraku_plan::run::{Event, NodeLimit, OnFailure, RolloutCheck, Run, RunOptions, RunWait};
use expect_test::{Expect, expect};

fn check(graph: &str, options: RunOptions, script: &str, expected: Expect) {
    expected.assert_eq(&transcript(graph, options, script));
}

fn canary() -> RunOptions {
    RunOptions {
        canary: 1,
        soak_seconds: 60,
        checks: vec![
            RolloutCheck::Manual,
            RolloutCheck::Http {
                url: "http://lb/health".to_owned(),
            },
        ],
        check_timeout_seconds: 300,
        ..RunOptions::default()
    }
}

fn racks() -> RunOptions {
    RunOptions {
        batch_by: Some("rack".to_owned()),
        ..RunOptions::default()
    }
}

#[test]
fn the_rest_starts_after_the_soak_time_and_every_check() {
    check(
        "a\nb\nc",
        canary(),
        "begin; a: succeeded; +59; +1; pass 1 1; pass 1 0; b: succeeded; c: succeeded",
        expect![[r#"
            begin
              start a
            a: succeeded
            +59
            +1
              check 1 1
            pass 1 1
            pass 1 0
              start b
              start c
            b: succeeded
            c: succeeded
            ---
            a  succeeded
            b  succeeded
            c  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn a_check_that_fails_stops_the_run_and_it_counts_as_failed() {
    check(
        "a\nb",
        canary(),
        "begin; a: succeeded; +60; fail 1 1; pass 1 0",
        expect![[r#"
            begin
              start a
            a: succeeded
            +60
              check 1 1
            fail 1 1
            pass 1 0
            ---
            a  succeeded
            b  skipped  the check `http://lb/health` failed: too slow
            Failed
        "#]],
    );
}

#[test]
fn a_check_that_takes_too_long_stops_the_run() {
    check(
        "a\nb",
        canary(),
        "begin; a: succeeded; +60; pass 1 1; +299; +1",
        expect![[r#"
            begin
              start a
            a: succeeded
            +60
              check 1 1
            pass 1 1
            +299
            +1
            ---
            a  succeeded
            b  skipped  the check `manual` did not pass within 300 s
            Failed
        "#]],
    );
}

#[test]
fn results_of_other_gates_and_results_during_the_soak_time_change_nothing() {
    check(
        "a\nb",
        canary(),
        "begin; a: succeeded; pass 1 0; pass 1 1; +60; pass 2 0; pass 1 7; fail 3 0; stop",
        expect![[r#"
            begin
              start a
            a: succeeded
            pass 1 0
            pass 1 1
            +60
              check 1 1
            pass 2 0
            pass 1 7
            fail 3 0
            stop
            ---
            a  succeeded
            b  skipped  ann stopped the run
            Cancelled
        "#]],
    );
}

#[test]
fn a_gate_without_anything_behind_it_is_not_waited_for() {
    check(
        "a",
        canary(),
        "begin; a: succeeded",
        expect![[r#"
        begin
          start a
        a: succeeded
        ---
        a  succeeded
        Succeeded
    "#]],
    );
}

#[test]
fn one_batch_runs_after_the_other_and_dependencies_come_first() {
    check(
        "a-r2 -> b-r1\nc-r1\nd-r2",
        racks(),
        "begin; c-r1: succeeded; a-r2: succeeded; d-r2: succeeded; b-r1: succeeded",
        expect![[r#"
            begin
              start c-r1
            c-r1: succeeded
              start a-r2
              start d-r2
            a-r2: succeeded
            d-r2: succeeded
              start b-r1
            b-r1: succeeded
            ---
            a-r2  succeeded
            c-r1  succeeded
            d-r2  succeeded
            b-r1  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn a_gate_after_each_batch_holds_the_next_one_back() {
    let options = RunOptions {
        gate_each_batch: true,
        soak_seconds: 10,
        ..racks()
    };
    check(
        "a-r1\nb-r2\nc-r3",
        options,
        "begin; a-r1: succeeded; +10; b-r2: succeeded; +9; cancel",
        expect![[r#"
            begin
              start a-r1
            a-r1: succeeded
            +10
              start b-r2
            b-r2: succeeded
            +9
            cancel
            ---
            a-r1  succeeded
            b-r2  succeeded
            c-r3  cancelled
            Cancelled
        "#]],
    );
}

#[test]
fn failed_nodes_stay_unavailable_and_leave_less_room() {
    let options = RunOptions {
        max_unavailable: Some(NodeLimit::Count(2)),
        on_failure: OnFailure::ContinueIndependent,
        ..RunOptions::default()
    };
    check(
        "a\nb\nc\nd\ne",
        options,
        "begin; a: failed; b: succeeded; c: succeeded; d: failed",
        expect![[r#"
            begin
              start a
              start b
            a: failed
            b: succeeded
              start c
            c: succeeded
              start d
            d: failed
            ---
            a  failed
            b  succeeded
            c  succeeded
            d  failed
            e  skipped  unavailable nodes: 2, and at most 2 may be
            Failed
        "#]],
    );
}

#[test]
fn drift_on_more_nodes_than_tolerated_stops_the_run() {
    let options = RunOptions {
        max_drift: Some(NodeLimit::Count(1)),
        batch: Some(NodeLimit::Count(1)),
        ..RunOptions::default()
    };
    check(
        "a\nb\nc",
        options,
        "begin; a: drifted; b: drifted",
        expect![[r#"
            begin
              start a
            a: drifted
              start b
            b: drifted
            ---
            a  succeeded
            b  succeeded
            c  skipped  2 nodes had drifted
            Failed
        "#]],
    );
}

#[test]
fn a_run_says_what_it_is_waiting_for() {
    let plan = plan("a\nb");
    let mut run = Run::new(run_id(), plan, canary(), &[]);
    assert_eq!(run.waits(), [RunWait::Turn]);
    run.step(&Event::Begun { unfit: Vec::new() }, after(0));
    assert_eq!(run.waits(), [RunWait::Nodes { running: 1 }]);
    let step = bunraku_plan::StepIndex(0);
    run.step(
        &crate::support::ended(step, bunraku_plan::run::RunEnding::Succeeded),
        after(0),
    );
    let until = after(60_000);
    assert_eq!(run.waits(), [RunWait::Soak { gate: 1, until }]);
    run.step(&Event::TimePassed, after(60_000));
    let waits = run.waits();
    assert!(
        matches!(
            &waits[..],
            [
                RunWait::Check { check: 0, .. },
                RunWait::Check { check: 1, .. }
            ]
        ),
        "{waits:?}"
    );
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (options, fits) in [
        (canary(), true),
        (
            RunOptions {
                canary: 0,
                ..canary()
            },
            false,
        ),
        (racks(), true),
        (
            RunOptions {
                gate_each_batch: true,
                ..racks()
            },
            false,
        ),
        (
            RunOptions {
                gate_each_batch: true,
                ..canary()
            },
            false,
        ),
        (
            RunOptions {
                gate_each_batch: true,
                soak_seconds: 5,
                ..racks()
            },
            true,
        ),
    ] {
        assert_eq!(options.problem().is_none(), fits, "{options:?}");
    }
}

#[test]
fn a_check_is_written_as_it_is_read() {
    for text in [
        "manual",
        "https://lb/health",
        "query:nodes { x = 1 }",
        "command:./check web",
    ] {
        let read: RolloutCheck = text.parse().expect("a check");
        assert_eq!(read.to_string(), text);
    }
    for text in ["", "query:", "command: ", "ftp://x", "check"] {
        assert!(text.parse::<RolloutCheck>().is_err(), "{text}");
    }
}
