//! Reports this node's activity and its pending runs to servers.
//!
//! A report is sent at every change, at every new connection, and again after a while if it was not
//! delivered: a server must not believe for days that a node runs.
//!
//! A run of the schedule that is over within a second is not reported here: nobody could see it, and
//! each of its four writes would be repeated by every node, every half hour.

use std::time::Duration;

use bunraku_wire::ClientError;
use bunraku_wire::api::{ActivityReceipt, ActivityReport, Cause, QueueReport};
use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::{Endpoint, ReportActivity, ReportQueue};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::Shared;

/// A run of the schedule that takes longer is reported.
const SHORT_RUN: Duration = Duration::from_secs(1);

/// Sends reports until cancelled.
pub(crate) async fn report_activity(shared: &Shared, shutdown: &CancellationToken) {
    let mut connected = shared.connected.subscribe();
    let back_off = BackOff::default();
    let mut failures = 0;
    // Servers know that the node does nothing.
    let mut is_known_idle = false;
    loop {
        let again = async {
            match failures {
                0 => std::future::pending().await,
                failures => tokio::time::sleep(back_off.random_wait(failures - 1)).await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            is_news = shared.runs.next_news(is_known_idle) => if !is_news {
                continue;
            },
            _ = connected.changed() => {}
            () = again => {}
        }
        // Without a stream, there is most likely no server. The next one gets the report.
        if !*connected.borrow_and_update() {
            (failures, is_known_idle) = (0, false);
            continue;
        }
        let is_idle = shared.runs.current_work() == CurrentWork::Nothing;
        let text = tokio::select! {
            () = shutdown.cancelled() => return,
            text = shared.runs.send_activity(shared) => text,
        };
        is_known_idle = is_idle && text.is_ok();
        failures = match text {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!(error = %error, "cannot report the agent's activity to the server");
                if error.is_passing() { failures + 1 } else { 0 }
            }
        };
    }
}

/// The node's work, as far as it decides whether servers must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CurrentWork {
    /// No run is active, none waits, and no ordered run holds the node.
    Nothing,
    /// Only a run of the schedule is active or due.
    ScheduledRun,
    Other,
}

fn work_of(queue: &QueueReport) -> CurrentWork {
    let mut runs = queue.running.iter().chain(&queue.pending);
    match (runs.next(), runs.next(), queue.held_by) {
        (None, None, None) => CurrentWork::Nothing,
        (Some(run), None, None) if run.causes == [Cause::Schedule] && run.more_causes == 0 => {
            CurrentWork::ScheduledRun
        }
        _ => CurrentWork::Other,
    }
}

impl Runs {
    fn current_work(&self) -> CurrentWork {
        work_of(&self.report())
    }

    /// Waits for a change. Returns whether it must be reported to servers that know that the node
    /// was idle, or that do not.
    async fn next_news(&self, is_known_idle: bool) -> bool {
        let changed = &self.inner.changed;
        changed.notified().await;
        let deadline = Instant::now() + SHORT_RUN;
        loop {
            match self.current_work() {
                _ if !is_known_idle => return true,
                CurrentWork::Nothing => return false,
                CurrentWork::ScheduledRun if Instant::now() < deadline => {}
                CurrentWork::ScheduledRun | CurrentWork::Other => return true,
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = changed.notified() => {}
            }
        }
    }

    /// Reports this node's activity, and learns whether the node may run.
    pub(crate) async fn send_activity(&self, shared: &Shared) -> Result<(), ClientError> {
        let name = &shared.options.name;
        let activity = ActivityReport {
            activity: self.activity(),
        };
        let receipt: ActivityReceipt = shared
            .client
            .call_with(ReportActivity.at(name), &activity)
            .await?;
        self.administer(receipt.administration);
        shared
            .client
            .call_with(ReportQueue.at(name), &self.report())
            .await
    }
}

#[cfg(test)]
mod tests {
    use bunraku_model::{NodeRunId, RunId};
    use bunraku_wire::api::{QueueEntry, RunSubject};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn entry(causes: Vec<Cause>) -> QueueEntry {
        QueueEntry {
            run: NodeRunId(Uuid::from_u128(1)),
            subject: RunSubject::Released,
            mode: None,
            causes,
            more_causes: 0,
            queued: Timestamp::UNIX_EPOCH,
            started: None,
        }
    }

    #[test]
    fn only_a_lone_run_of_the_schedule_may_stay_unreported() {
        let idle = QueueReport::default();
        assert_eq!(work_of(&idle), CurrentWork::Nothing);
        let scheduled = QueueReport {
            running: Some(entry(vec![Cause::Schedule])),
            ..idle.clone()
        };
        assert_eq!(work_of(&scheduled), CurrentWork::ScheduledRun);
        let followed = QueueReport {
            pending: vec![entry(vec![Cause::Schedule])],
            ..scheduled.clone()
        };
        assert_eq!(work_of(&followed), CurrentWork::Other);
        let held = QueueReport {
            held_by: Some(RunId(Uuid::from_u128(2))),
            ..scheduled.clone()
        };
        assert_eq!(work_of(&held), CurrentWork::Other);
        let asked_for = QueueReport {
            running: Some(entry(vec![
                Cause::Schedule,
                Cause::Operator {
                    name: "ann".to_owned(),
                    reason: None,
                },
            ])),
            ..idle
        };
        assert_eq!(work_of(&asked_for), CurrentWork::Other);
    }
}
