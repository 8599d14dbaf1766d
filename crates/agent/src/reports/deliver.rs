//! Delivery of reports from the spool to a server.
//!
//! The first event of a run is sent immediately, unless the run comes from the schedule: such a run
//! is often over within a second, and then it is one batch. Later events of an active run are sent in batches:
//! at most one per second, or earlier if a batch is full. With nothing to send, nothing happens: no
//! timer runs.
//!
//! This module does not know how a batch is transported. A client ([`ReportsTo`]) or a simulation
//! does it.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{NodeName, NodeRunId};
use bunraku_wire::api::{NumberedEvent, ReportBatch, ReportReceipt};
use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::{AddReportEvents, Endpoint};
use bunraku_wire::{Client, ClientError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Spool;
use super::spool::Batch;

/// The maximum number of events in one batch.
const MOST: usize = 100;
/// The maximum size of a batch, well within a server's limit.
const MOST_BYTES: usize = 256 << 10;
/// The time between two batches of an active run.
const PACE: Duration = Duration::from_secs(1);

/// The reason why a server did not accept a batch.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The server lacks earlier events.
    #[error("the server expects event {wanted} first")]
    Gap { wanted: u64 },
    #[error("the batch exceeds the server's limit")]
    TooLarge,
    #[error("the server cannot parse it: {0}")]
    NotUnderstood(String),
    /// The node is over its budget.
    #[error("the server asks to wait for {} s", after.as_secs())]
    OverBudget { after: Duration },
    /// It is unknown whether the server accepted the batch.
    #[error("{0}")]
    Away(String),
}

/// The destination of reports.
#[async_trait]
pub trait ReportsTo: Send + Sync {
    async fn post(
        &self,
        run: NodeRunId,
        batch: ReportBatch,
    ) -> Result<ReportReceipt, DeliveryError>;

    /// Returns the time to wait after this many failures in a row.
    fn wait(&self, back_off: BackOff, failures: u32) -> Duration {
        back_off.random_wait(failures)
    }

    /// Makes a file durable. Returns whether it succeeded.
    async fn sync(&self, file: File) -> bool {
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        matches!(synced, Ok(Ok(())))
    }
}

/// Delivers reports to one of this node's servers.
pub(crate) struct ReportDelivery {
    pub(crate) node: NodeName,
    pub(crate) client: Client,
}

#[async_trait]
impl ReportsTo for ReportDelivery {
    async fn post(
        &self,
        run: NodeRunId,
        batch: ReportBatch,
    ) -> Result<ReportReceipt, DeliveryError> {
        let at = AddReportEvents.at((&self.node, &run));
        let sent = self.client.call_with(at, &batch).await;
        sent.map_err(not_taken)
    }
}

fn not_taken(error: ClientError) -> DeliveryError {
    if let Some(after) = error.retry_after() {
        return DeliveryError::OverBudget { after };
    }
    match (error.expected_number(), error.status()) {
        (Some(wanted), _) => DeliveryError::Gap { wanted },
        (None, Some(413)) => DeliveryError::TooLarge,
        (None, Some(400)) => DeliveryError::NotUnderstood(error.to_string()),
        (None, _) => DeliveryError::Away(error.to_string()),
    }
}

/// Sends reports until cancelled. `connected` changes when a new attempt is worthwhile.
pub(crate) async fn deliver(
    to: &dyn ReportsTo,
    mut connected: watch::Receiver<bool>,
    spool: &Spool,
    shutdown: &CancellationToken,
) {
    let back_off = BackOff {
        first: Duration::from_millis(500),
        longest: Duration::from_secs(60),
    };
    let mut failures = 0;
    let mut most = MOST;
    let mut last_sent: Option<Instant> = None;
    // The run of the schedule whose beginning waits for more events, and since when.
    let mut quiet_start: Option<(NodeRunId, Instant)> = None;
    loop {
        let Some(batch) = spool.next_batch(most, MOST_BYTES) else {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = spool.changed.notified() => continue,
            }
        };
        let since = if batch.is_quiet_start {
            let known = quiet_start.filter(|(run, _)| *run == batch.run);
            Some(
                quiet_start
                    .insert(known.unwrap_or((batch.run, Instant::now())))
                    .1,
            )
        } else {
            last_sent
        };
        let due = since
            .map(|since| since + PACE)
            .filter(|due| *due > Instant::now());
        if let Some(due) = due.filter(|_| batch.at_work && !batch.full) {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep_until(due) => {}
                () = spool.changed.notified() => {}
            }
            continue;
        }
        last_sent = Some(Instant::now());
        let sent = tokio::select! {
            () = shutdown.cancelled() => return,
            sent = send(to, spool, batch) => sent,
        };
        let mut told_to_wait = false;
        let wait = match sent {
            Err(DeliveryError::OverBudget { after }) => {
                tracing::warn!(
                    ?after,
                    "this node is over its budget; its reports wait in the spool"
                );
                failures += 1;
                told_to_wait = true;
                after.max(to.wait(back_off, failures - 1))
            }
            Ok(SendOutcome::Taken) => {
                (failures, most) = (0, MOST);
                continue;
            }
            Ok(SendOutcome::TooLarge { events }) => {
                most = (events / 2).max(1);
                continue;
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot deliver reports; retrying");
                failures += 1;
                to.wait(back_off, failures - 1)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            _ = connected.changed(), if !told_to_wait => {}
        }
    }
}

enum SendOutcome {
    Taken,
    /// The batch must be split.
    TooLarge {
        events: usize,
    },
}

async fn send(
    to: &dyn ReportsTo,
    spool: &Spool,
    batch: Batch,
) -> Result<SendOutcome, DeliveryError> {
    let Batch {
        run, events, file, ..
    } = batch;
    // Events must be on disk before a server has them. Otherwise a crash would cause the same
    // numbers to be assigned twice.
    if let Some(file) = file
        && !to.sync(file).await
    {
        tracing::debug!(%run, "sending events that are not stored on disk");
    }
    let first = events.first().map(|event| event.number);
    let count = events.len();
    match to.post(run, in_one(events)).await {
        Ok(receipt) => {
            if !spool.acknowledge(run, receipt)
                && let Some(end) = spool.end_under(run, receipt.next)
            {
                let receipt = to.post(run, in_one(vec![end])).await?;
                spool.acknowledge(run, receipt);
            }
            Ok(SendOutcome::Taken)
        }
        Err(DeliveryError::Gap { wanted }) => {
            tracing::info!(%run, next = wanted, "the server expects earlier events of a run");
            let receipt = ReportReceipt {
                next: wanted,
                finished: false,
            };
            spool.acknowledge(run, receipt);
            Ok(SendOutcome::Taken)
        }
        Err(DeliveryError::TooLarge) => {
            if let (1, Some(number)) = (count, first) {
                spool.omit(run, number, "it exceeded the server's limit");
            }
            Ok(SendOutcome::TooLarge { events: count })
        }
        Err(DeliveryError::NotUnderstood(error)) => {
            tracing::error!(%run, error, "the server cannot parse a report; setting it aside");
            spool.set_aside(run);
            Ok(SendOutcome::Taken)
        }
        Err(error) => Err(error),
    }
}

fn in_one(events: Vec<NumberedEvent>) -> ReportBatch {
    ReportBatch {
        first: events.first().map_or(0, |event| event.number),
        events: events.into_iter().map(|event| event.event).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bunraku_model::ReleaseNumber;
    use bunraku_wire::api::{Cause, ReportEvent, RunEnding, RunMode, RunStarted};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::reports::SpoolOptions;

    const AFTER: Duration = Duration::from_secs(300);

    /// A server that refuses the first batch, and says when to try again.
    #[derive(Default)]
    struct BusyServer {
        posts: Mutex<Vec<Instant>>,
    }

    #[async_trait]
    impl ReportsTo for BusyServer {
        async fn post(
            &self,
            _: NodeRunId,
            batch: ReportBatch,
        ) -> Result<ReportReceipt, DeliveryError> {
            let mut posts = self.posts.lock().expect("no panic");
            posts.push(Instant::now());
            if posts.len() == 1 {
                return Err(DeliveryError::OverBudget { after: AFTER });
            }
            Ok(ReportReceipt {
                next: batch.first + batch.events.len() as u64,
                finished: true,
            })
        }

        async fn sync(&self, _: File) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_a_node_over_budget_wait_as_long_as_the_server_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(directory.path(), SpoolOptions::default()).expect("a spool");
        let started = RunStarted::new(Timestamp::UNIX_EPOCH, RunMode::Enforce, "engine");
        let recorder = spool.begin(NodeRunId(Uuid::from_u128(7)), started, false);
        recorder.finish(RunEnding::Succeeded, None);
        let (server, shutdown) = (BusyServer::default(), CancellationToken::new());
        let (reconnect, connected) = watch::channel(true);
        let delivered = async {
            // A new connection is no reason to try earlier.
            tokio::time::sleep(AFTER / 10).await;
            reconnect.send_replace(true);
            while spool.next_batch(1, 1).is_some() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            shutdown.cancel();
        };
        tokio::join!(deliver(&server, connected, &spool, &shutdown), delivered);
        let posts = server.posts.lock().expect("no panic");
        assert_eq!(posts.len(), 2);
        assert!(posts[1] - posts[0] >= AFTER, "{:?}", posts[1] - posts[0]);
    }

    /// A server that accepts everything, and remembers the sizes of batches.
    #[derive(Default)]
    struct OpenServer {
        batches: Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl ReportsTo for OpenServer {
        async fn post(
            &self,
            _: NodeRunId,
            batch: ReportBatch,
        ) -> Result<ReportReceipt, DeliveryError> {
            let finished = matches!(batch.events.last(), Some(ReportEvent::Finished(_)));
            let next = batch.first + batch.events.len() as u64;
            self.batches
                .lock()
                .expect("no panic")
                .push(batch.events.len());
            Ok(ReportReceipt { next, finished })
        }

        async fn sync(&self, _: File) -> bool {
            true
        }
    }

    /// Returns the sizes of the batches of a run that takes this long.
    async fn batches_of(cause: Cause, duration: Duration) -> Vec<usize> {
        let directory = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(directory.path(), SpoolOptions::default()).expect("a spool");
        let (server, shutdown) = (OpenServer::default(), CancellationToken::new());
        let (_, connected) = watch::channel(true);
        let run = async {
            let started = RunStarted {
                causes: vec![cause],
                ..RunStarted::new(Timestamp::UNIX_EPOCH, RunMode::Enforce, "engine")
            };
            let recorder = spool.begin(NodeRunId(Uuid::from_u128(7)), started, false);
            tokio::time::sleep(duration).await;
            recorder.finish(RunEnding::Succeeded, None);
            while !spool.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            shutdown.cancel();
        };
        tokio::join!(deliver(&server, connected, &spool, &shutdown), run);
        server.batches.into_inner().expect("no panic")
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_run_of_the_schedule_is_one_batch_and_every_other_run_begins_at_once() {
        let short = Duration::from_millis(300);
        assert_eq!(batches_of(Cause::Schedule, short).await, [2]);
        assert_eq!(batches_of(Cause::Schedule, PACE * 5).await, [1, 1]);
        let release = Cause::Release {
            release: ReleaseNumber(3),
        };
        assert_eq!(batches_of(release, short).await, [1, 1]);
    }
}
