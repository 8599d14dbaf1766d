//! Reports this node's activity and its pending runs to servers.
//!
//! A report is sent at every change, at every new connection, and again after a while if it was not
//! delivered: a server must not believe for days that a node runs.

use bunraku_wire::ClientError;
use bunraku_wire::api::{ActivityReceipt, ActivityReport};
use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::{Endpoint, ReportActivity, ReportQueue};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::Shared;

/// Sends reports until cancelled.
pub(crate) async fn report_activity(shared: &Shared, shutdown: &CancellationToken) {
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
        // Without a stream, there is most likely no server. The next one gets the report.
        if !*connected.borrow_and_update() {
            failures = 0;
            continue;
        }
        let text = tokio::select! {
            () = shutdown.cancelled() => return,
            text = shared.runs.send_activity(shared) => text,
        };
        failures = match text {
            Ok(()) => 0,
            Err(error) => {
                tracing::warn!(error = %error, "cannot report the agent's activity to the server");
                if error.is_passing() { failures + 1 } else { 0 }
            }
        };
    }
}

impl Runs {
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
