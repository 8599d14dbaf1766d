//! From the spool to a server.
//!
//! The first event goes at once; later ones of a run at work in batches, at
//! most one each second or a full one earlier. With nothing to send, nothing
//! happens: no timer runs.

use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_wire::ClientError;
use bunraku_wire::api::{NumberedEvent, ReportBatch, ReportReceipt};
use bunraku_wire::client::BackOff;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Spool;
use super::spool::Batch;
use crate::Shared;

/// Events of one batch.
const MOST: usize = 100;
/// Well within what a server takes.
const MOST_BYTES: usize = 256 << 10;
/// Between two batches of a run at work.
const PACE: Duration = Duration::from_secs(1);

/// Sends until cancelled.
pub(crate) async fn deliver(shared: &Shared, spool: &Spool, shutdown: &CancellationToken) {
    let back_off = BackOff {
        first: Duration::from_millis(500),
        longest: Duration::from_secs(60),
    };
    let mut failures = 0;
    let mut most = MOST;
    let mut last_sent: Option<Instant> = None;
    let mut connected = shared.connected.subscribe();
    loop {
        let Some(batch) = spool.next_batch(most, MOST_BYTES) else {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = spool.changed.notified() => continue,
            }
        };
        let due = last_sent
            .map(|sent| sent + PACE)
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
            sent = send(shared, spool, batch) => sent,
        };
        let wait = match sent {
            Ok(Sent::Taken) => {
                (failures, most) = (0, MOST);
                continue;
            }
            Ok(Sent::TooLarge { events }) => {
                most = (events / 2).max(1);
                continue;
            }
            Err(error) => {
                tracing::warn!(error = %error, "reports wait on this node; trying again");
                failures += 1;
                back_off.random_wait(failures - 1)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            _ = connected.changed() => {}
        }
    }
}

enum Sent {
    Taken,
    /// In smaller pieces, please.
    TooLarge {
        events: usize,
    },
}

async fn send(shared: &Shared, spool: &Spool, batch: Batch) -> Result<Sent, ClientError> {
    let Batch {
        run, events, file, ..
    } = batch;
    // What a server has must be on disk: the numbers would be given out twice.
    if let Some(file) = file {
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        if !matches!(synced, Ok(Ok(()))) {
            tracing::debug!(%run, "events are sent that the disk does not hold");
        }
    }
    let first = events.first().map(|event| event.number);
    let count = events.len();
    match post(shared, run, events).await {
        Ok(receipt) => {
            if !spool.acknowledge(run, receipt)
                && let Some(end) = spool.end_under(run, receipt.next)
            {
                let receipt = post(shared, run, vec![end]).await?;
                spool.acknowledge(run, receipt);
            }
            Ok(Sent::Taken)
        }
        Err(error) if error.wanted().is_some() => {
            let next = error.wanted().unwrap_or(0);
            tracing::info!(%run, next, "the server wants earlier events of a run");
            let receipt = ReportReceipt {
                next,
                finished: false,
            };
            spool.acknowledge(run, receipt);
            Ok(Sent::Taken)
        }
        Err(error) if error.status() == Some(413) => {
            if let (1, Some(number)) = (count, first) {
                spool.omit(run, number, "it was larger than the server takes");
            }
            Ok(Sent::TooLarge { events: count })
        }
        Err(error) if error.status() == Some(400) => {
            tracing::error!(%run, error = %error, "the server does not understand a report; it is set aside");
            spool.set_aside(run);
            Ok(Sent::Taken)
        }
        Err(error) => Err(error),
    }
}

async fn post(
    shared: &Shared,
    run: NodeRunId,
    events: Vec<NumberedEvent>,
) -> Result<ReportReceipt, ClientError> {
    let path = format!("/v1/nodes/{}/reports/{run}/events", shared.options.name);
    let batch = ReportBatch {
        first: events.first().map_or(0, |event| event.number),
        events: events.into_iter().map(|event| event.event).collect(),
    };
    shared.client.post(&path, &batch).await
}
