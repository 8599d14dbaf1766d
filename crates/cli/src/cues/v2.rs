//! Cues in the keyspace of etcd's v2 API, which the original Puppet module uses.
//!
//! A follower waits for changes in its own task and passes them on. It resumes at the index where
//! it stopped, and reads all keys when etcd no longer has the events since then.

use std::time::Duration;

use bunraku_store::etcd::{EtcdV2, EtcdV2Changes, EtcdV2Error};
use tokio::sync::mpsc;

use super::message::Message;
use crate::failure::Failure;

/// The delay before the next request to etcd.
const RETRY: Duration = Duration::from_secs(1);

/// Turns the error into one sentence with its reason.
pub(super) fn failure(error: EtcdV2Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match std::error::Error::source(&error) {
        Some(source) => failure.caused_by(source),
        None => failure,
    }
}

/// Writes one message under each of the keys.
pub(super) async fn write(
    client: &EtcdV2,
    keys: &[String],
    message: &Message,
    ttl: Duration,
) -> Result<(), Failure> {
    let value = serde_json::to_string(message)?;
    for key in keys {
        client.set(key, &value, ttl).await.map_err(failure)?;
    }
    Ok(())
}

/// The changes starting at an index.
pub(super) struct Follower {
    changes: mpsc::Receiver<EtcdV2Changes>,
}

impl Follower {
    pub(super) fn start(client: EtcdV2, from: u64) -> Self {
        let (sender, changes) = mpsc::channel(16);
        tokio::spawn(follow(client, from, sender));
        Self { changes }
    }

    /// Waits for the next changes. Never resolves after the follower has ended.
    pub(super) async fn next(follower: &mut Option<Self>) -> EtcdV2Changes {
        if let Some(Self { changes }) = follower
            && let Some(changes) = changes.recv().await
        {
            return changes;
        }
        std::future::pending().await
    }
}

async fn follow(client: EtcdV2, from: u64, changes: mpsc::Sender<EtcdV2Changes>) {
    let mut from = from;
    loop {
        let found = match client.wait(from).await {
            Err(EtcdV2Error::Cleared(_)) => client.all().await,
            waited => waited,
        };
        match found {
            Ok(found) => {
                from = found.next;
                if changes.send(found).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, "watching the v2 API of etcd failed; retrying");
                tokio::select! {
                    () = changes.closed() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }
}
