//! The client of the HTTP API: HTTP/2 over mutual TLS, one connection.
//!
//! It works through a list of servers and stays with the one that answers.
//! Many requests share its connection. What is safe to repeat (GET, PUT,
//! DELETE) is repeated on another server when a connection breaks; a POST
//! only when it surely never left.
//!
//! Absent: what the paths mean. Replies are values of the caller's types.

mod address;
mod back_off;
mod call;
mod connection;
mod error;
mod lines;
mod refusal;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use address::{DEFAULT_PORT, InvalidAddress, ServerAddress};
pub use back_off::BackOff;
pub use error::{ClientError, ConnectError, Problem, ServerFailure};
pub use lines::Lines;
pub use refusal::Refusal;
pub use transfer::Download;

use crate::tls::ReloadableClientTls;
use call::{Call, CallBody};
use connection::Connection;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Tried in this order; never empty.
    pub servers: Vec<ServerAddress>,
    pub tls: ReloadableClientTls,
    /// For one server: name lookup, TCP and TLS.
    pub connect_timeout: Duration,
    /// For one request and its whole reply; for streams and transfers, until
    /// the reply starts.
    pub request_timeout: Duration,
    /// How long a stream or a transfer may be silent.
    pub idle_timeout: Duration,
    /// While no server can be reached, the list is tried again for this
    /// long. Zero: once.
    pub patience: Duration,
    /// How long to wait between two rounds through the list.
    pub back_off: BackOff,
    /// HTTP/2 pings, so that a dead connection is noticed: one after each
    /// such span, answered within another. `None` for programs that end
    /// after one request.
    pub keep_alive: Option<Duration>,
    /// The longest reply, and the longest line of a stream, in bytes.
    pub largest_reply: usize,
    pub user_agent: String,
}

impl ClientOptions {
    /// The usual values.
    pub fn new(servers: Vec<ServerAddress>, tls: ReloadableClientTls) -> Self {
        Self {
            servers,
            tls,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            patience: Duration::ZERO,
            back_off: BackOff::default(),
            keep_alive: Some(Duration::from_secs(20)),
            largest_reply: 64 << 20,
            user_agent: concat!("bunraku/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// A cheap handle; clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    slot: Mutex<Slot>,
}

/// Where we are connected, and where to try first.
#[derive(Debug, Default)]
struct Slot {
    current: Option<Connection>,
    preferred: usize,
    generation: u64,
}

/// A reply that has started well.
struct Reply {
    response: Response<Incoming>,
    server: ServerAddress,
    /// When it must be complete.
    deadline: Instant,
}

impl Client {
    /// Connects when the first request is made.
    pub fn new(options: ClientOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                slot: Mutex::default(),
            }),
        }
    }

    /// Fetches a value.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Call::new(Method::GET, path)).await
    }

    /// Sends a value and takes one. Never sent twice.
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.json(Call::new(Method::POST, path).with_json(body)?)
            .await
    }

    /// Puts a value in place and takes one.
    pub async fn put<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.json(Call::new(Method::PUT, path).with_json(body)?)
            .await
    }

    /// Removes something.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Call::new(Method::DELETE, path)).await
    }

    /// The server that the client is connected to.
    pub async fn server(&self) -> Option<ServerAddress> {
        let slot = self.shared.slot.lock().await;
        slot.current
            .as_ref()
            .filter(|connection| connection.is_open())
            .map(|connection| connection.server.clone())
    }

    /// Lets go of the connection: the next request makes a new one, with the
    /// certificate that is current then. Requests under way are finished.
    pub async fn reconnect(&self) {
        self.shared.slot.lock().await.current = None;
    }

    async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let reply = self.send(call, self.options().request_timeout).await?;
        let body = self
            .whole_body(reply.response, &reply.server, reply.deadline)
            .await?;
        decode(&body, reply.server)
    }

    async fn whole_body(
        &self,
        response: Response<Incoming>,
        server: &ServerAddress,
        deadline: Instant,
    ) -> Result<Bytes, ClientError> {
        let limited = Limited::new(response.into_body(), self.options().largest_reply);
        match tokio::time::timeout_at(deadline, limited.collect()).await {
            Err(_) => Err(self.timed_out(server, "the reply was not complete")),
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(ClientError::BadReply {
                    server: server.clone(),
                    why: "it is larger than allowed",
                    source: None,
                })
            }
            Ok(Err(source)) => Err(ClientError::Lost {
                server: server.clone(),
                source,
            }),
        }
    }

    /// Sends until a server replies, or until it must not be sent again. A
    /// reply that says "error" is turned into one. The time to connect does
    /// not count: it has limits of its own.
    async fn send(&self, mut call: Call, limit: Duration) -> Result<Reply, ClientError> {
        if !call.path.starts_with('/') {
            return Err(ClientError::InvalidPath(call.path));
        }
        let mut attempts_left = self.options().servers.len();
        loop {
            let connection = self.connection().await?;
            let deadline = Instant::now() + limit;
            let request = call.request(&connection.server, &self.options().user_agent)?;
            let sent = connection.send(request);
            let failure = match tokio::time::timeout_at(deadline, sent).await {
                Err(_) => return Err(self.timed_out(&connection.server, "no reply came")),
                Ok(Ok(response)) => return self.check(response, connection.server, deadline).await,
                Ok(Err(failure)) => failure,
            };
            // A body that could not be read is not the connection's fault.
            if !call.is_stream() || !connection.is_open() {
                self.give_up_on(&connection).await;
            }
            if attempts_left == 0 || !call.may_repeat(&failure) {
                return Err(failure.into_error(connection.server));
            }
            call.take_back(failure);
            attempts_left -= 1;
        }
    }

    async fn check(
        &self,
        response: Response<Incoming>,
        server: ServerAddress,
        deadline: Instant,
    ) -> Result<Reply, ClientError> {
        let status = response.status();
        if status.is_success() {
            return Ok(Reply {
                response,
                server,
                deadline,
            });
        }
        let body = self.whole_body(response, &server, deadline).await?;
        Err(ClientError::Api {
            status: status.as_u16(),
            problem: Problem::from_reply(status, &body),
            server,
        })
    }

    /// The open connection, or a new one. Whoever asks meanwhile waits for
    /// the same attempt.
    async fn connection(&self) -> Result<Connection, ClientError> {
        let give_up_at = Instant::now() + self.options().patience;
        let mut round = 0;
        loop {
            let failures = match self.connect_to_any().await {
                Ok(connection) => return Ok(connection),
                Err(failures) => failures,
            };
            let wait = self.options().back_off.wait(round, random_fraction());
            if Instant::now() + wait >= give_up_at {
                return Err(ClientError::none_reachable(failures));
            }
            tracing::debug!(round, ?wait, "no server reachable, trying again");
            tokio::time::sleep(wait).await;
            round += 1;
        }
    }

    async fn connect_to_any(&self) -> Result<Connection, Vec<ServerFailure>> {
        let mut slot = self.shared.slot.lock().await;
        if let Some(open) = slot.current.as_ref().filter(|current| current.is_open()) {
            return Ok(open.clone());
        }
        let options = self.options();
        let mut failures = Vec::new();
        for step in 0..options.servers.len() {
            let index = (slot.preferred + step) % options.servers.len();
            let server = &options.servers[index];
            slot.generation += 1;
            match Connection::open(server, options, slot.generation).await {
                Ok(connection) => {
                    slot.preferred = index;
                    slot.current = Some(connection.clone());
                    return Ok(connection);
                }
                Err(failure) => {
                    tracing::debug!(%server, error = %failure.cause, "server not reachable");
                    failures.push(failure);
                }
            }
        }
        Err(failures)
    }

    /// The next attempt starts with the next server, unless someone else
    /// has already moved on.
    async fn give_up_on(&self, connection: &Connection) {
        let mut slot = self.shared.slot.lock().await;
        let generation = slot.current.as_ref().map(|current| current.generation);
        if generation == Some(connection.generation) {
            slot.current = None;
            slot.preferred = (slot.preferred + 1) % self.options().servers.len();
        }
    }

    fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    fn timed_out(&self, server: &ServerAddress, what: &'static str) -> ClientError {
        ClientError::TimedOut {
            server: server.clone(),
            what,
            after: self.options().request_timeout,
        }
    }
}

/// No content reads as `null`, so that `()` fits.
fn decode<T: DeserializeOwned>(body: &[u8], server: ServerAddress) -> Result<T, ClientError> {
    let text = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(text).map_err(|source| ClientError::BadReply {
        server,
        why: "it is not the expected JSON",
        source: Some(source.into()),
    })
}

/// Between 0 and 1, for waits that must not be the same on every node.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness the wait is merely not spread.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}
