//! Connections from other members.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{NodeName, Role};
use bunraku_wire::{PeerIdentity, ReloadableServerTls};
use futures::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Hello, IncomingMessage, PeerAnswer, PeerQuestion, Purpose, frame};

const HANDSHAKE: Duration = Duration::from_secs(5);
/// The idle limit. A member sends several messages per second.
const SILENCE: Duration = Duration::from_secs(60);
/// The connection limit. Members are few; more connections come from someone else.
const MOST: usize = 256;

/// Answers questions. It receives the sender and the sender's epoch.
pub type AnswerHandler =
    Arc<dyn Fn(NodeName, u64, PeerQuestion) -> BoxFuture<'static, PeerAnswer> + Send + Sync>;

/// The reason why messages from members cannot be received.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for members on {address}")]
pub struct ListenError {
    pub address: SocketAddr,
    #[source]
    pub source: io::Error,
}

/// Accepts connections from members.
pub struct Listener {
    listener: TcpListener,
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    tls: ReloadableServerTls,
    cluster: String,
    incoming: mpsc::Sender<IncomingMessage>,
    /// Receives every epoch that another member reports.
    epochs: mpsc::Sender<u64>,
    answer: AnswerHandler,
}

impl Listener {
    pub async fn bind(
        address: SocketAddr,
        tls: ReloadableServerTls,
        cluster: String,
        incoming: mpsc::Sender<IncomingMessage>,
        epochs: mpsc::Sender<u64>,
        answer: AnswerHandler,
    ) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| ListenError { address, source })?;
        Ok(Self {
            listener,
            shared: Shared {
                tls,
                cluster,
                incoming,
                epochs,
                answer,
            },
        })
    }

    /// Runs until cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(MOST));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept a member's connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                continue;
            };
            let (shared, stop) = (self.shared.clone(), stop.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    () = stop.cancelled() => {}
                    served = serve(&shared, stream) => if let Err(error) = served {
                        tracing::debug!(error = %error, "a member's connection ended");
                    },
                }
            });
        }
    }
}

fn refuse(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

async fn serve(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = shared.tls.accept(stream, HANDSHAKE).await?;
    let peer = PeerIdentity::of(&stream)
        .map_err(|error| refuse(&error.to_string()))?
        .ok_or_else(|| refuse("the peer did not present a certificate"))?;
    if peer.role != Role::Server {
        return Err(refuse("the peer is not a server"));
    }
    let hello: Hello = tokio::time::timeout(HANDSHAKE, frame::read_json(&mut stream)).await??;
    if hello.cluster != shared.cluster {
        tracing::warn!(peer = %peer.name, "refused a member of another cluster");
        return Err(refuse("the peer is a member of another cluster"));
    }
    let _ = shared.epochs.try_send(hello.epoch);
    match hello.purpose {
        Purpose::Question => {
            let question = tokio::time::timeout(HANDSHAKE, frame::read_json(&mut stream)).await??;
            let answer = (shared.answer)(peer.name, hello.epoch, question).await;
            frame::write_json(&mut stream, &answer).await
        }
        Purpose::Gossip => loop {
            let Some(data) = tokio::time::timeout(SILENCE, frame::read(&mut stream)).await?? else {
                return Ok(());
            };
            // A message that does not fit is dropped, as a datagram would be.
            let from = peer.name.clone();
            let _ = shared.incoming.try_send(IncomingMessage { from, data });
        },
    }
}
