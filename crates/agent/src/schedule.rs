//! Facts, on their own schedule.
//!
//! The first submission is at once; later ones are spread, so that a fleet
//! that started together does not come together.

use std::sync::Arc;
use std::time::Duration;

use bunraku_wire::ClientError;
use bunraku_wire::api::FactsReceipt;
use bunraku_wire::client::BackOff;
use tokio_util::sync::CancellationToken;

use crate::Shared;

/// Submits facts until cancelled.
pub(crate) async fn submit_facts(shared: &Shared, shutdown: &CancellationToken) {
    let retry = BackOff {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(60),
    };
    // The span of a back-off that never doubles: between a quarter and all of it.
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
            Err(error) => {
                tracing::warn!(error = %error, "facts could not be submitted; trying again");
                failures += 1;
                retry.random_wait(failures - 1)
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
    let collect = Arc::clone(&shared.options.collect_facts);
    let facts = tokio::task::spawn_blocking(move || collect())
        .await
        .unwrap_or_else(|error| {
            std::panic::resume_unwind(error.into_panic());
        });
    let path = format!("/v1/nodes/{}/facts", shared.options.name);
    shared.client.put(&path, &facts).await
}
