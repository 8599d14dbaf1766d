//! Submits facts on their own schedule.
//!
//! The first submission is immediate. Later ones are spread, so that a fleet that started at the
//! same time does not submit at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bunraku_wire::ClientError;
use bunraku_wire::api::{FactsReceipt, SubmissionOrder};
use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::{Endpoint, SubmissionQuery, SubmitFacts};
use tokio_util::sync::CancellationToken;

use uuid::Uuid;

use crate::Shared;

/// Numbers this process's submissions, so that a server can tell a delayed submission from a newer
/// one. The clock is not suitable, because it can be set back.
pub(crate) struct Submissions {
    session: Uuid,
    next: AtomicU64,
    /// The last submission was acknowledged.
    settled: AtomicBool,
}

impl Default for Submissions {
    fn default() -> Self {
        Self {
            session: Uuid::new_v4(),
            next: AtomicU64::new(0),
            settled: AtomicBool::new(false),
        }
    }
}

impl Submissions {
    fn next(&self) -> SubmissionOrder {
        SubmissionOrder {
            session: self.session,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            settled: self.settled.swap(false, Ordering::Relaxed),
        }
    }

    /// Records that a server has this submission. Of two concurrent submissions, neither settles
    /// the other.
    fn acknowledged(&self, order: SubmissionOrder) {
        if self.next.load(Ordering::Relaxed) == order.number + 1 {
            self.settled.store(true, Ordering::Relaxed);
        }
    }
}

/// Submits facts until cancelled.
pub(crate) async fn submit_facts(shared: &Shared, shutdown: &CancellationToken) {
    let retry = BackOff {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(60),
    };
    // A back-off that never doubles: its waits are between a quarter of the span and all of it.
    let usual = BackOff {
        first: shared.options.facts_interval,
        longest: shared.options.facts_interval,
    };
    let mut failures = 0;
    loop {
        let wait = match submit_now(shared).await {
            Ok(receipt) => {
                tracing::info!(fact_set = %receipt.fact_set, changed = receipt.changed, "facts submitted");
                failures = 0;
                usual.random_wait(0)
            }
            // The server would refuse the same facts again, and facts may be large.
            Err(error) if matches!(error.status(), Some(400 | 413)) => {
                tracing::error!(error = %error, "the server refused this node's facts; the next ones are sent as scheduled");
                failures = 0;
                usual.random_wait(0)
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot submit facts; retrying");
                failures += 1;
                let wait = retry.random_wait(failures - 1);
                wait.max(error.retry_after().unwrap_or_default())
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Collects and submits facts now.
pub(crate) async fn submit_now(shared: &Shared) -> Result<FactsReceipt, ClientError> {
    let order = shared.submissions.next();
    let modules = shared.plugins.facts().await;
    let collect = Arc::clone(&shared.options.collect_facts);
    let facts = tokio::task::spawn_blocking(move || collect(&modules))
        .await
        .unwrap_or_else(|error| {
            std::panic::resume_unwind(error.into_panic());
        });
    // Facts are numbered when they are collected: that is what makes them newer.
    let query = SubmissionQuery {
        session: Some(order.session),
        number: Some(order.number),
        settled: order.settled,
    };
    let at = SubmitFacts.with_query(&shared.options.name, &query);
    let receipt = shared.client.call_with(at, &facts).await?;
    shared.submissions.acknowledged(order);
    Ok(receipt)
}
