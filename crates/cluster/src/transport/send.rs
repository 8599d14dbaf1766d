//! Outgoing messages: one queue and one connection per member.

use std::collections::HashMap;
use std::time::Duration;

use bunraku_model::NodeName;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::connect::Dialer;
use super::frame;

/// The number of messages that wait for a connection. More are dropped.
const QUEUE: usize = 32;
/// A peer that takes longer to accept one message gets a new connection.
const STALLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(300);

/// Sends messages, or drops them.
pub struct Senders {
    dialer: Dialer,
    queues: HashMap<(NodeName, String), mpsc::Sender<Bytes>>,
    stop: CancellationToken,
}

impl Senders {
    pub fn new(dialer: Dialer, stop: CancellationToken) -> Self {
        Self {
            dialer,
            queues: HashMap::new(),
            stop,
        }
    }

    /// Sends a message without blocking. It may not arrive.
    pub fn send(&mut self, name: &NodeName, address: &str, data: Bytes) {
        let key = (name.clone(), address.to_owned());
        let queue = self.queues.entry(key).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let (dialer, stop) = (self.dialer.clone(), self.stop.clone());
            let (name, address) = (name.clone(), address.to_owned());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = deliver(dialer, name, address, receiver) => {}
                }
            });
            sender
        });
        let _ = queue.try_send(data);
    }
}

async fn deliver(
    dialer: Dialer,
    name: NodeName,
    address: String,
    mut queue: mpsc::Receiver<Bytes>,
) {
    while let Some(first) = queue.recv().await {
        let mut stream = match dialer.gossip(&name, &address).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%name, %address, error = %error, "cannot reach a member");
                // The queued messages are outdated by now.
                while queue.try_recv().is_ok() {}
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let mut next = Some(first);
        while let Some(data) = next {
            let sent = tokio::time::timeout(STALLED, frame::write(&mut stream, &data)).await;
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
            next = queue.recv().await;
        }
    }
}
