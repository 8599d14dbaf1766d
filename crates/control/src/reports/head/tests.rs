//! A report's head as a pure value.

use bunraku_wire::api::{LogLine, RunEnding, RunMode};
use uuid::Uuid;

use super::*;

fn started() -> ReportEvent {
    ReportEvent::Started(RunStarted::new(
        Timestamp::UNIX_EPOCH,
        RunMode::Enforce,
        "engine",
    ))
}

fn log(message: &str) -> ReportEvent {
    ReportEvent::Log(LogLine {
        at: Timestamp::UNIX_EPOCH,
        level: "info".to_owned(),
        source: None,
        message: message.to_owned(),
    })
}

fn omitted(count: u64) -> ReportEvent {
    ReportEvent::Omitted(OmittedEvents {
        count,
        reason: "no room".to_owned(),
    })
}

fn finished() -> ReportEvent {
    ReportEvent::Finished(RunFinished {
        duration_seconds: 1.0,
        unchanged: 1,
        changed: 2,
        corrective: 1,
        ..RunFinished::new(Timestamp::UNIX_EPOCH, RunEnding::Succeeded)
    })
}

fn send(
    known: Option<ReportHead>,
    first: u64,
    events: Vec<ReportEvent>,
) -> Result<BatchEffect, ServiceError> {
    let node = NodeName::new("web-1").expect("a name");
    let arrival = BatchArrival {
        node: &node,
        run: NodeRunId(Uuid::from_u128(1)),
        now: Timestamp::UNIX_EPOCH,
    };
    ReportHead::accept(known, ReportBatch { first, events }, &arrival)
}

/// Returns the resulting head and the numbers of the new events.
fn stored(accepted: Result<BatchEffect, ServiceError>) -> (ReportHead, Vec<u64>) {
    match accepted.expect("accepted") {
        BatchEffect::Store { head, events } => {
            (*head, events.iter().map(|event| event.number).collect())
        }
        BatchEffect::Nothing(receipt) => panic!("nothing was new: {receipt:?}"),
    }
}

#[test]
fn what_comes_again_is_dropped_and_what_follows_is_stored() {
    let (head, numbers) = stored(send(None, 0, vec![started(), log("a")]));
    assert_eq!(numbers, [0, 1]);
    let again = send(Some(head.clone()), 0, vec![started(), log("a")]);
    let receipt = ReportReceipt {
        next: 2,
        finished: false,
    };
    assert_eq!(again.expect("accepted"), BatchEffect::Nothing(receipt));
    let (head, numbers) = stored(send(Some(head), 1, vec![log("a"), log("b"), finished()]));
    assert_eq!(numbers, [2, 3]);
    assert_eq!(head.counts.changed, 2);
    assert!(head.receipt().finished);
}

#[test]
fn a_gap_is_refused_with_the_expected_number() {
    let gap = send(None, 3, vec![log("a")]);
    assert!(
        matches!(gap, Err(ServiceError::Gap { wanted: 0 })),
        "{gap:?}"
    );
    let (head, _) = stored(send(None, 0, vec![started()]));
    let gap = send(Some(head), 2, vec![log("b")]);
    assert!(
        matches!(gap, Err(ServiceError::Gap { wanted: 1 })),
        "{gap:?}"
    );
}

#[test]
fn an_omission_takes_its_numbers_and_only_those_that_are_missing() {
    let (head, _) = stored(send(None, 0, vec![started(), log("a"), log("b")]));
    // The agent did not know that 1 and 2 had arrived, and lost everything up to 9.
    let (head, numbers) = stored(send(Some(head), 1, vec![omitted(9), finished()]));
    assert_eq!(numbers, [3, 10]);
    assert_eq!((head.omitted, head.next), (7, 11));
}

#[test]
fn a_report_begins_with_started_and_ends_with_finished() {
    for events in [
        vec![log("a")],
        vec![started(), started()],
        vec![started(), finished(), log("a")],
        vec![started(), omitted(0)],
        vec![started(), omitted(u64::MAX)],
    ] {
        let refused = send(None, 0, events.clone());
        assert!(
            matches!(refused, Err(ServiceError::Invalid { .. })),
            "{events:?}: {refused:?}"
        );
    }
}
