//! Keeps the trusted CAs and the revocation list current.
//!
//! The agent asks when a stream opens, when a server says that something changed, and from time
//! to time. New connections then use what it learned. If the server asks for it, the agent also
//! renews its certificate: the CA is being replaced.

use std::time::Duration;

use bunraku_wire::client::BackOff;
use bunraku_wire::endpoints::ShowAuthority;
use bunraku_wire::trust;
use tokio_util::sync::CancellationToken;

use crate::Shared;
use crate::join::use_stored;
use crate::renewal;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The time between two looks, if nothing happens. Each wait is random around it.
const INTERVAL: BackOff = BackOff {
    first: Duration::from_secs(3600),
    longest: Duration::from_secs(3600),
};

/// The waits after a failure.
const RETRY: BackOff = BackOff {
    first: Duration::from_secs(5),
    longest: Duration::from_secs(600),
};

/// Runs until cancelled.
pub(crate) async fn keep_current(shared: &Shared, shutdown: &CancellationToken) {
    let mut failures = 0;
    loop {
        let wait = match look(shared).await {
            Ok(()) => {
                failures = 0;
                INTERVAL.random_wait(0)
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot update the trusted CAs and the revocation list; retrying");
                failures += 1;
                RETRY.random_wait(failures - 1)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.trust_news.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn look(shared: &Shared) -> Result<(), BoxError> {
    // Without a stream there is no server to ask; its opening wakes this up.
    if !*shared.connected.borrow() {
        return Ok(());
    }
    let mut change = trust::refresh(&shared.client, &shared.credentials).await?;
    if change.is_changed {
        use_stored(shared)?;
    }
    if change.must_renew {
        renewal::renew(shared).await?;
        // Tells the server that the new certificate is in use.
        change = trust::refresh(&shared.client, &shared.credentials).await?;
    }
    if change.is_changed {
        use_stored(shared)?;
        tracing::info!("the trusted CAs or the revocation list changed");
        leave_untrusted_server(shared).await;
    }
    Ok(())
}

/// Closes the stream if its server is no longer trusted, which a new connection to it shows. A
/// stream to a trusted server stays open: every revocation reaches every agent, and must not make
/// all of them reconnect.
async fn leave_untrusted_server(shared: &Shared) {
    shared.client.reconnect().await;
    let asked = shared.client.call(ShowAuthority).await;
    if let Err(error) = asked {
        tracing::info!(error = %error, "leaving a server that may no longer be trusted");
        shared.renewed.notify_one();
    }
}
