//! Tells servers what this node does and what waits here.
//!
//! At every change and at every new connection. Losing one loses no work.

use bunraku_wire::ClientError;
use bunraku_wire::api::{ActivityReceipt, ActivityReport};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::Shared;

/// Tells until cancelled.
pub(crate) async fn tell_servers(shared: &Shared, shutdown: &CancellationToken) {
    let mut connected = shared.connected.subscribe();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.runs.inner.changed.notified() => {}
            _ = connected.changed() => {}
        }
        // With no stream there is most likely no server; the next one hears it.
        if !*connected.borrow_and_update() {
            continue;
        }
        let told = tokio::select! {
            () = shutdown.cancelled() => return,
            told = shared.runs.tell(shared) => told,
        };
        if let Err(error) = told {
            tracing::warn!(error = %error, "cannot tell the server what the agent does");
        }
    }
}

impl Runs {
    /// Tells what this node does, and hears whether it may.
    pub(crate) async fn tell(&self, shared: &Shared) -> Result<(), ClientError> {
        let name = &shared.options.name;
        let activity = ActivityReport {
            activity: self.activity(),
        };
        let path = format!("/v1/nodes/{name}/activity");
        let receipt: ActivityReceipt = shared.client.put(&path, &activity).await?;
        self.administer(receipt.administration);
        let path = format!("/v1/nodes/{name}/queue");
        shared.client.put::<_, ()>(&path, &self.report()).await
    }
}
