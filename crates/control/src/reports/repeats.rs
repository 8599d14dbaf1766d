//! Runs of a node's schedule that end like the run before them.
//!
//! Most runs of a fleet change nothing. A report of each would be most of what the store holds, and
//! would say nothing new. So the newest report of the node counts them, for at most a day: each node
//! that runs has a report that is not older.
//!
//! [`repeated`] decides, and is pure. Only a run that its agent reports as a whole, in one batch, can
//! be a repeat, and only one that nobody asked for: who asks waits for a report under the run's id.
//!
//! Invariant: a run is counted once, even if its agent sends it again because the reply was lost. An
//! agent sends the reports of its runs one after the other, so it is enough to know the newest id.

use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_store::Swap;
use bunraku_wire::api::{
    Cause, NumberedEvent, ReportBatch, ReportEvent, ReportReceipt, ReportRepeats, RunEnding,
    RunFinished, RunStarted,
};
use jiff::Timestamp;

use super::head::{BatchArrival, ReportHead};
use super::last_run::StoredLastRun;
use super::{AcceptedBatch, Reports};
use crate::node_events::RunEvents;
use crate::{ServiceError, document, keys, node_condition};

/// The age of a report from which on the next run gets a report of its own.
const COUNTED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// The number of events of a run without events between its beginning and its end.
const WHOLE_RUN: u64 = 2;

/// The effect of a batch that contains a whole run.
#[derive(PartialEq, Debug)]
enum RepeatEffect {
    /// The report counts the run already.
    Known,
    /// The report, which now counts the run.
    Counted(Box<ReportHead>),
}

impl Reports {
    /// Counts the run in the node's newest report, if it is a repeat of that.
    pub(super) async fn repeat(
        &self,
        batch: &ReportBatch,
        arrival: &BatchArrival<'_>,
    ) -> Result<Option<Swap<AcceptedBatch>>, ServiceError> {
        let Some((started, finished)) = whole_run(batch) else {
            return Ok(None);
        };
        let node = arrival.node;
        let last_key = keys::node_last_run(node);
        let last = document::read::<StoredLastRun>(&*self.store, &last_key).await?;
        let Some(last) = last else { return Ok(None) };
        let newest = self.head(node, last.document.last_run.run).await?;
        let Some(known) = newest else { return Ok(None) };
        let taken = |stored| AcceptedBatch {
            receipt: ReportReceipt {
                next: WHOLE_RUN,
                finished: true,
            },
            stored,
            ended: (stored > 0).then_some(finished.ending),
            needs_settling: false,
        };
        let head = match repeated(&known.document, arrival, started, finished) {
            None => return Ok(None),
            Some(RepeatEffect::Known) => return Ok(Some(Swap::Done(taken(0)))),
            Some(RepeatEffect::Counted(head)) => head,
        };
        let mut last_run = last.document;
        last_run.last_run.at = arrival.now;
        let events: Vec<NumberedEvent> = (0..)
            .zip(batch.events.iter().cloned())
            .map(|(number, event)| NumberedEvent { number, event })
            .collect();
        let key = keys::report(node, head.run);
        let transaction = node_condition::when_exists(node)
            .when_unchanged(&key, Some(&known.entry))
            .when_unchanged(&last_key, Some(&last.entry))
            .put(key, document::encode(&*head))
            .put(last_key, document::encode(&last_run));
        let new = RunEvents {
            node,
            run: arrival.run,
            started,
            events: &events,
        };
        let transaction = self.recorder.report_events(transaction, &new);
        Ok(Some(Swap::Write(transaction, taken(events.len()))))
    }
}

/// Returns the beginning and the end of a run of the schedule, if there is nothing in between.
fn whole_run(batch: &ReportBatch) -> Option<(&RunStarted, &RunFinished)> {
    match (batch.first, batch.events.as_slice()) {
        (
            0,
            [
                ReportEvent::Started(started),
                ReportEvent::Finished(finished),
            ],
        ) => {
            let is_scheduled = started.causes == [Cause::Schedule]
                && started.more_causes == 0
                && started.also.is_empty();
            is_scheduled.then_some((started, finished))
        }
        _ => None,
    }
}

/// Returns what becomes of the newest report of a node if the run is a repeat of it.
fn repeated(
    newest: &ReportHead,
    arrival: &BatchArrival<'_>,
    started: &RunStarted,
    finished: &RunFinished,
) -> Option<RepeatEffect> {
    let before = newest.finished.as_ref()?;
    if newest
        .repeats
        .is_some_and(|repeats| repeats.run == arrival.run)
    {
        return Some(RepeatEffect::Known);
    }
    let age = Duration::try_from(arrival.now.duration_since(newest.first_received));
    let is_young = age.is_ok_and(|age| age < COUNTED_FOR);
    let is_same = is_same_work(&newest.started, started)
        && is_quiet(before)
        && is_quiet(finished)
        && before.counts() == finished.counts()
        // It has no events between its beginning and its end, either.
        && newest.next == WHOLE_RUN;
    (is_young && is_same).then(|| {
        RepeatEffect::Counted(Box::new(ReportHead {
            repeats: Some(next_repeats(newest.repeats, arrival.run, arrival.now)),
            last_received: arrival.now,
            newest_batch: None,
            ..newest.clone()
        }))
    })
}

fn next_repeats(before: Option<ReportRepeats>, run: NodeRunId, at: Timestamp) -> ReportRepeats {
    let count = before.map_or(1, |before| before.count + 1);
    ReportRepeats { count, run, at }
}

/// Returns whether two runs did the same, whatever caused the first.
fn is_same_work(first: &RunStarted, second: &RunStarted) -> bool {
    let second = RunStarted {
        at: first.at,
        causes: first.causes.clone(),
        more_causes: first.more_causes,
        also: first.also.clone(),
        ..second.clone()
    };
    *first == second
}

/// Returns whether a run found everything as it should be.
fn is_quiet(finished: &RunFinished) -> bool {
    finished.ending == RunEnding::Succeeded
        && finished.message.is_none()
        && finished.failure.is_none()
        && finished.counts().total() == finished.unchanged
}

#[cfg(test)]
mod tests;
