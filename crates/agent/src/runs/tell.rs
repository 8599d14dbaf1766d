//! Tells servers what this node does and what waits here.
//!
//! At every change, at every new connection, and again after a while when it
//! did not get through: a server must not believe for days that a node runs.

use bunraku_wire::ClientError;
use bunraku_wire::api::{ActivityReceipt, ActivityReport};
use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::{Endpoint, ReportActivity, ReportQueue};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::Shared;

/// Tells until cancelled.
pub(crate) async fn tell_servers(shared: &Shared, shutdown: &CancellationToken) {
    let mut connected = shared.connected.subscribe();
    let back_off = BackOff::default();
    let mut failures = 0;
    loop {
        let again = async {
            match failures {
                0 => std::future::pending().await,
                failures => tokio::time::sleep(back_off.random_wait(failures - 1)).await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.runs.inner.changed.notified() => {}
            _ = connected.changed() => {}
            () = again => {}
        }
        // With no stream there is most likely no server; the next one hears it.
        if !*connected.borrow_and_update() {
            failures = 0;
            continue;
        }
        let told = tokio::select! {
            () = shutdown.cancelled() => return,
            told = shared.runs.tell(shared) => told,
        };
        failures = match told {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!(error = %error, "cannot tell the server what the agent does");
                if error.is_passing() { failures + 1 } else { 0 }
            }
        };
    }
}

impl Runs {
    /// Tells what this node does, and hears whether it may.
    pub(crate) async fn tell(&self, shared: &Shared) -> Result<(), ClientError> {
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
