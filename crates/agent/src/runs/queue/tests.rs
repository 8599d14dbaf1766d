//! The run queue as a pure value.

use bunraku_model::RunId;
use bunraku_wire::api::{RunMode, RunSubject, TriggerCause};
use uuid::Uuid;

use super::*;

fn id(number: u128) -> NodeRunId {
    NodeRunId(Uuid::from_u128(number))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn trigger(name: &str) -> Cause {
    Cause::Trigger(TriggerCause::new(name, 8))
}

fn request(number: u128, cause: Cause) -> RunRequest {
    RunRequest::new(id(number), vec![cause])
}

fn ordered(number: u128) -> RunRequest {
    RunRequest {
        coalesce: false,
        ..request(
            number,
            Cause::Run {
                run: RunId(Uuid::from_u128(9)),
            },
        )
    }
}

#[test]
fn triggers_during_a_run_become_one_run_with_all_their_causes() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, trigger("first")), at(0))
        .expect("taken");
    queue.start(at(0), None).expect("it starts");
    let first = queue.submit(request(2, trigger("a")), at(1));
    assert_eq!(first, Ok(SubmitOutcome::Queued { behind: 1 }));
    for number in 0..1_000 {
        let next = queue.submit(request(100 + number, trigger(&number.to_string())), at(2));
        assert_eq!(next, Ok(SubmitOutcome::Folded { into: id(2) }));
    }
    assert_eq!(queue.pending.len(), 1);
    let run = &queue.pending[0];
    assert_eq!(run.request.causes.len(), CAUSES_KEPT);
    assert_eq!(run.request.causes.len() as u64 + run.more_causes, 1_001);
    assert_eq!(run.also.len(), ALSO_KEPT);
    assert!(queue.start(at(3), None).is_none(), "one at a time");
    queue.finish();
    assert_eq!(
        queue
            .start(at(3), None)
            .expect("the pending one")
            .request
            .id,
        id(2)
    );
}

#[test]
fn ordered_runs_wait_in_order_and_are_never_folded() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, trigger("t")), at(0))
        .expect("taken");
    for number in [2, 3] {
        queue.submit(ordered(number), at(1)).expect("taken");
    }
    let folded = queue.submit(request(4, trigger("u")), at(2));
    assert_eq!(folded, Ok(SubmitOutcome::Folded { into: id(1) }));
    let order: Vec<NodeRunId> = std::iter::from_fn(|| {
        let run = queue.start(at(3), None)?;
        queue.finish();
        Some(run.request.id)
    })
    .collect();
    assert_eq!(order, [id(1), id(2), id(3)]);
}

#[test]
fn only_what_does_the_same_is_folded() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, Cause::Schedule), at(0))
        .expect("taken");
    let noop = RunRequest {
        mode: Some(RunMode::Noop),
        ..request(2, Cause::Schedule)
    };
    let tagged = RunRequest {
        tags: vec!["web".to_owned()],
        ..request(3, Cause::Schedule)
    };
    let configured = RunRequest {
        subject: RunSubject::configured(),
        ..request(4, Cause::Schedule)
    };
    for other in [noop, tagged, configured] {
        let outcome = queue.submit(other, at(0));
        assert!(
            matches!(outcome, Ok(SubmitOutcome::Queued { .. })),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_request_that_comes_again_is_known_also_after_its_run() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, trigger("t")), at(0))
        .expect("taken");
    assert_eq!(
        queue.submit(request(1, trigger("t")), at(0)),
        Ok(SubmitOutcome::Known)
    );
    queue.start(at(1), None).expect("it starts");
    queue.finish();
    assert_eq!(
        queue.submit(request(1, trigger("t")), at(2)),
        Ok(SubmitOutcome::Known)
    );
    assert!(queue.pending.is_empty());
}

#[test]
fn a_full_queue_and_a_disabled_node_refuse() {
    let mut queue = Queue::default();
    for number in 0..MOST_PENDING as u128 {
        queue.submit(ordered(number), at(0)).expect("room");
    }
    assert_eq!(
        queue.submit(ordered(5_000), at(0)),
        Err(SubmitRefusal::Full(MOST_PENDING))
    );
    queue.administration = Some(Administration::Disabled {
        since: at(0),
        reason: "disk".to_owned(),
        by: "alice".to_owned(),
    });
    let refused = queue
        .submit(request(5_001, trigger("t")), at(0))
        .expect_err("disabled");
    assert_eq!(refused.to_string(), "the node is disabled by alice: disk");
}

#[test]
fn a_folded_run_starts_as_late_as_the_most_patient_of_its_requests() {
    let mut queue = Queue::default();
    let soon = RunRequest {
        start_before: Some(at(10)),
        ..request(1, trigger("soon"))
    };
    let late = RunRequest {
        start_before: Some(at(20)),
        ..request(2, trigger("late"))
    };
    queue.submit(soon, at(0)).expect("taken");
    queue.submit(late, at(0)).expect("taken");
    assert_eq!(queue.next_expiry(), Some(at(20)));
    assert!(queue.take_expired(at(19)).is_empty());
    let expired = queue.take_expired(at(20));
    assert_eq!(expired[0].request.id, id(1));
    assert_eq!(expired[0].also, [id(2)]);
    assert!(queue.pending.is_empty());
}

#[test]
fn a_run_is_cancelled_wherever_it_is() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, trigger("t")), at(0))
        .expect("taken");
    queue.start(at(0), None).expect("it starts");
    queue
        .submit(request(2, trigger("a")), at(0))
        .expect("taken");
    queue
        .submit(request(3, trigger("b")), at(0))
        .expect("taken");
    assert_eq!(queue.cancel(id(1)), CancelOutcome::Running);
    assert_eq!(queue.cancel(id(3)), CancelOutcome::Folded { into: id(2) });
    assert!(matches!(queue.cancel(id(2)), CancelOutcome::Pending(run) if run.request.id == id(2)));
    assert_eq!(queue.cancel(id(2)), CancelOutcome::Nowhere);
}

#[test]
fn an_interrupted_trigger_is_asked_for_again_a_few_times_and_an_ordered_run_never() {
    let mut queue = Queue::default();
    queue
        .submit(request(1, trigger("t")), at(0))
        .expect("taken");
    let mut asked = 0;
    for number in 10..20 {
        let Some(run) = queue.start(at(1), None) else {
            break;
        };
        queue.finish();
        asked += u32::from(queue.ask_again(run, id(number), at(2)));
    }
    assert_eq!(asked + 1, MOST_INTERRUPTIONS);
    queue.submit(ordered(30), at(0)).expect("taken");
    let run = queue.start(at(1), None).expect("it starts");
    queue.finish();
    assert!(!queue.ask_again(run, id(31), at(2)));
}

#[test]
fn a_command_that_comes_again_is_known_and_what_is_remembered_is_bounded() {
    let mut queue = Queue::default();
    let newest = 2 * ACCEPTED_KEPT as u128;
    for number in 0..=newest {
        let taken = queue.submit(request(number, trigger("again")), at(0));
        assert!(taken.is_ok(), "{taken:?}");
    }
    assert_eq!(queue.accepted.len(), ACCEPTED_KEPT);
    let again = queue.submit(request(newest, trigger("again")), at(1));
    assert_eq!(again, Ok(SubmitOutcome::Known));
}
