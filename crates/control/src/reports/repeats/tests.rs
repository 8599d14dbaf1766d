//! Repeats as pure decisions. Those with a store are in the tests of the server.

use bunraku_model::NodeName;
use bunraku_wire::api::{LogLine, RunMode};
use uuid::Uuid;

use super::*;
use crate::reports::head::BatchEffect;

const HOUR: i64 = 3_600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn started(cause: Cause) -> RunStarted {
    RunStarted {
        causes: vec![cause],
        resources: 100,
        ..RunStarted::new(at(0), RunMode::Enforce, "engine")
    }
}

fn finished(changed: u64) -> RunFinished {
    RunFinished {
        unchanged: 100 - changed,
        changed,
        ..RunFinished::new(at(1), RunEnding::Succeeded)
    }
}

fn batch(started: RunStarted, finished: RunFinished) -> ReportBatch {
    ReportBatch {
        first: 0,
        events: vec![
            ReportEvent::Started(started),
            ReportEvent::Finished(finished),
        ],
    }
}

fn id(number: u128) -> NodeRunId {
    NodeRunId(Uuid::from_u128(number))
}

/// Returns the report of run 1, which began at the second 0.
fn report(batch: ReportBatch) -> ReportHead {
    let node = NodeName::new("web-1").expect("a name");
    let arrival = BatchArrival {
        node: &node,
        run: id(1),
        now: at(0),
    };
    match ReportHead::accept(None, batch, &arrival).expect("accepted") {
        BatchEffect::Store { head, .. } => *head,
        BatchEffect::Nothing(receipt) => panic!("{receipt:?}"),
    }
}

/// Returns the effect of a whole run on the newest report.
fn effect(newest: &ReportHead, batch: &ReportBatch, run: u128, now: i64) -> Option<RepeatEffect> {
    let arrival = BatchArrival {
        node: &newest.node,
        run: id(run),
        now: at(now),
    };
    let (started, finished) = whole_run(batch)?;
    repeated(newest, &arrival, started, finished)
}

fn is_counted(effect: Option<RepeatEffect>) -> bool {
    matches!(effect, Some(RepeatEffect::Counted(_)))
}

fn quiet() -> ReportBatch {
    batch(started(Cause::Schedule), finished(0))
}

#[test]
fn equal_runs_of_the_schedule_are_counted_once_each() {
    let first = report(quiet());
    let Some(RepeatEffect::Counted(second)) = effect(&first, &quiet(), 2, HOUR) else {
        panic!("it is the same")
    };
    let repeats = |count, run, now| {
        Some(ReportRepeats {
            count,
            run: id(run),
            at: at(now),
        })
    };
    assert_eq!(second.repeats, repeats(1, 2, HOUR));
    let again = effect(&second, &quiet(), 2, HOUR + 1);
    assert_eq!(again, Some(RepeatEffect::Known), "the reply was lost");
    let Some(RepeatEffect::Counted(third)) = effect(&second, &quiet(), 3, 2 * HOUR) else {
        panic!("it is the same")
    };
    assert_eq!(third.repeats, repeats(2, 3, 2 * HOUR));
    assert_eq!(third.run, id(1));
}

#[test]
fn whatever_differs_gets_its_own_report() {
    let first = report(quiet());
    let other = |change: &dyn Fn(&mut RunStarted, &mut RunFinished)| {
        let (mut started, mut finished) = (started(Cause::Schedule), finished(0));
        change(&mut started, &mut finished);
        effect(&first, &batch(started, finished), 2, HOUR)
    };
    assert!(is_counted(other(&|_, _| {})));
    assert_eq!(other(&|started, _| started.mode = RunMode::Noop), None);
    assert_eq!(other(&|started, _| started.from_cache = true), None);
    assert_eq!(other(&|started, _| started.also = vec![id(9)]), None);
    assert_eq!(other(&|started, _| started.causes.clear()), None);
    assert_eq!(other(&|_, end| end.unchanged = 99), None);
    assert_eq!(other(&|_, end| end.ending = RunEnding::TimedOut), None);
    assert_eq!(other(&|_, end| end.message = Some("x".to_owned())), None);
    let by_person = Cause::Operator {
        name: "ann".to_owned(),
        reason: None,
    };
    let requested = batch(started(by_person.clone()), finished(0));
    assert_eq!(effect(&first, &requested, 2, HOUR), None);
    // The first run may have any cause.
    assert!(is_counted(effect(&report(requested), &quiet(), 2, HOUR)));
}

#[test]
fn a_run_after_one_that_changed_something_gets_its_own_report() {
    let first = report(batch(started(Cause::Schedule), finished(1)));
    assert_eq!(effect(&first, &quiet(), 2, HOUR), None);
    let same_change = batch(started(Cause::Schedule), finished(1));
    assert_eq!(effect(&first, &same_change, 2, HOUR), None);
}

#[test]
fn a_report_counts_runs_for_a_day_and_not_before_it_began() {
    let first = report(quiet());
    assert!(is_counted(effect(&first, &quiet(), 2, 24 * HOUR - 1)));
    assert_eq!(effect(&first, &quiet(), 2, 24 * HOUR), None);
    assert_eq!(
        effect(&first, &quiet(), 2, -1),
        None,
        "a clock was set back"
    );
}

#[test]
fn only_a_whole_run_without_events_in_between_can_repeat() {
    let first = report(quiet());
    let mut with_log = quiet();
    let line = LogLine {
        at: at(0),
        level: "info".to_owned(),
        source: None,
        message: "hello".to_owned(),
    };
    with_log.events.insert(1, ReportEvent::Log(line));
    assert_eq!(effect(&first, &with_log, 2, HOUR), None);
    let mut tail = quiet();
    tail.events.remove(0);
    tail.first = 1;
    assert_eq!(effect(&first, &tail, 2, HOUR), None);
    let unfinished = ReportHead {
        finished: None,
        ..first
    };
    assert_eq!(effect(&unfinished, &quiet(), 2, HOUR), None);
}
