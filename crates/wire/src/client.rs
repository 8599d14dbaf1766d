//! The client of the HTTP API, over mutual TLS.
//!
//! The client tries a list of servers and stays with the one that answers. Many requests
//! share one HTTP/2 connection, which is closed when it is idle. A stream has its own
//! HTTP/1.1 connection. When a connection breaks, requests that are safe to repeat (GET, PUT,
//! DELETE) are repeated on another server. A POST is repeated only if it certainly was not
//! sent.
//!
//! Requests to the API go through [`Client::call`] and its siblings, which take
//! an endpoint of [`crate::endpoints`]. Methods that take a path as text are
//! for other paths, and for tests of the paths themselves.

mod address;
mod back_off;
mod call;
mod conditional;
mod connection;
mod dial;
mod endpoint;
mod error;
mod fetch;
mod idle;
mod lines;
mod refusal;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use address::{DEFAULT_PORT, InvalidAddress, ServerAddress};
pub use back_off::BackOff;
pub use conditional::ConditionalReply;
pub use endpoint::{Decode, Encode, ReplyOf, Transfer};
pub use error::{ClientError, ConnectError, Problem, ServerFailure};
pub use lines::Lines;
pub use refusal::{TlsCause, TlsRefusal};
pub use transfer::Download;

use crate::tls::ReloadableClientTls;
use call::{Call, CallBody};
use connection::{Channel, Connection};
use idle::UseGuard;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Servers, tried in this order. Never empty.
    pub servers: Vec<ServerAddress>,
    pub tls: ReloadableClientTls,
    /// Time limit for connecting to one server: name lookup, TCP and TLS.
    pub connect_timeout: Duration,
    /// Time limit for one request and its whole reply. For streams and transfers, the limit
    /// until the reply starts.
    pub request_timeout: Duration,
    /// Longest silence of a stream or a transfer.
    pub idle_timeout: Duration,
    /// Time for which the list is tried again while no server can be reached. Zero: the list
    /// is tried once.
    pub patience: Duration,
    /// Wait between two rounds through the list.
    pub back_off: BackOff,
    /// Interval for detecting dead connections: a probe after each such span of silence,
    /// which must be answered within another span (HTTP/2 pings, and TCP keep-alive below
    /// streams). `None` for programs that end after one request.
    pub keep_alive: Option<Duration>,
    /// Idle time after which the shared connection is closed. The next request opens it
    /// again. `None`: never.
    pub idle_close: Option<Duration>,
    /// Maximum length of a reply and of a line of a stream, in bytes.
    pub largest_reply: usize,
    pub user_agent: String,
    /// The reason for changes, for the audit log.
    pub reason: Option<String>,
}

impl ClientOptions {
    /// Returns the default settings.
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
            idle_close: Some(Duration::from_secs(15)),
            largest_reply: 64 << 20,
            user_agent: concat!("bunraku/", env!("CARGO_PKG_VERSION")).to_owned(),
            reason: None,
        }
    }
}

/// A cheap handle. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// Replaces the ids that requests get otherwise.
    request_id: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    slot: Mutex<ConnectionSlot>,
    /// The highest age that a reply gave for its data, in seconds; 0 if none did.
    old: AtomicU64,
}

/// The current connection, and the server to try first.
#[derive(Debug)]
struct ConnectionSlot {
    /// Never empty.
    servers: Arc<[ServerAddress]>,
    current: Option<Connection>,
    preferred: usize,
    generation: u64,
}

/// A reply that has started successfully.
struct Reply {
    response: Response<Incoming>,
    server: ServerAddress,
    /// The time by which it must be complete.
    deadline: Instant,
    /// Held until the whole reply has arrived.
    in_use: Option<UseGuard>,
}

/// The kind of connection that a request uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionKind {
    /// HTTP/2, shared with all other requests.
    Shared,
    /// HTTP/1.1, for this request alone.
    Own,
}

impl Client {
    /// Creates a client. It connects at the first request.
    pub fn new(options: ClientOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                slot: Mutex::new(ConnectionSlot {
                    servers: options.servers.clone().into(),
                    current: None,
                    preferred: 0,
                    generation: 0,
                }),
                options,
                old: AtomicU64::new(0),
            }),
            request_id: None,
        }
    }

    /// Returns a handle that sends its requests with this id, so that their records can be found
    /// in the audit log. It shares the connection.
    #[must_use]
    pub fn with_request_id(&self, id: &str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            request_id: Some(id.into()),
        }
    }

    /// Returns the time since the datastores lost their majority, if a reply was made without
    /// one and so may be stale.
    pub fn old_data(&self) -> Option<Duration> {
        let seconds = self.shared.old.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// Fetches a value.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(Call::new(Method::GET, path)).await
    }

    /// Sends a value and returns one. Never sent twice.
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        self.json(Call::new(Method::POST, path).with_json(body)?)
            .await
    }

    /// Stores a value and returns one.
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

    /// Returns the server of the shared connection, if one is open.
    pub async fn server(&self) -> Option<ServerAddress> {
        let slot = self.shared.slot.lock().await;
        slot.current
            .as_ref()
            .filter(|connection| connection.is_open())
            .map(|connection| connection.server.clone())
    }

    /// Drops the connection. The next request opens a new one with the certificate that is
    /// current then. Requests in progress finish.
    pub async fn reconnect(&self) {
        self.shared.slot.lock().await.current = None;
    }

    /// Replaces the list of servers. The first one is tried first. Requests in progress and
    /// the open connection stay unchanged. An empty list changes nothing.
    pub async fn set_servers(&self, servers: Vec<ServerAddress>) {
        if servers.is_empty() {
            return;
        }
        let mut slot = self.shared.slot.lock().await;
        slot.servers = servers.into();
        slot.preferred = 0;
    }

    async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        self.json_and(call, |_| ()).await
    }

    /// Reads a value, and passes the headers of the reply to `read`.
    async fn json_and<T: DeserializeOwned>(
        &self,
        call: Call,
        read: impl FnOnce(&http::HeaderMap),
    ) -> Result<T, ClientError> {
        let limit = self.options().request_timeout;
        let reply = self.send(call, ConnectionKind::Shared, limit).await?;
        self.note_age(&reply.response);
        read(reply.response.headers());
        let body = self
            .whole_body(reply.response, &reply.server, reply.deadline)
            .await?;
        decode(&body, reply.server)
    }

    fn note_age(&self, response: &Response<Incoming>) {
        let said = response.headers().get(crate::api::OLD_DATA_HEADER);
        let seconds = said.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(seconds) = seconds {
            self.shared.old.fetch_max(seconds.max(1), Ordering::Relaxed);
        }
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
                    why: "it exceeds the size limit",
                    source: None,
                })
            }
            Ok(Err(source)) => Err(ClientError::Lost {
                server: server.clone(),
                source,
            }),
        }
    }

    /// Sends until a server replies, or until the request must not be sent again. An error
    /// status becomes an error. The time to connect does not count, because it has its own
    /// limits.
    async fn send(
        &self,
        mut call: Call,
        over: ConnectionKind,
        limit: Duration,
    ) -> Result<Reply, ClientError> {
        if !call.path.starts_with('/') {
            return Err(ClientError::InvalidPath(call.path));
        }
        if let Some(id) = &self.request_id {
            call.request_id = id.to_string();
        }
        let mut attempts_left = self.shared.slot.lock().await.servers.len();
        loop {
            let mut channel = self.channel(over).await?;
            let deadline = Instant::now() + limit;
            let options = self.options();
            let reason = options.reason.as_deref();
            let request = call.request(&channel.server, &options.user_agent, reason)?;
            let sent = channel.send(request);
            let failure = match tokio::time::timeout_at(deadline, sent).await {
                Err(_) => return Err(self.timed_out(&channel.server, "no reply")),
                Ok(Ok(response)) => return self.check(response, channel, deadline).await,
                Ok(Err(failure)) => failure,
            };
            // A body that could not be read is not the connection's fault.
            if !call.is_stream() || !channel.is_open() {
                self.give_up_on(&channel).await;
            }
            if attempts_left == 0 || !call.may_repeat(&failure) {
                return Err(failure.into_error(channel.server));
            }
            call.take_back(failure);
            attempts_left -= 1;
        }
    }

    async fn check(
        &self,
        response: Response<Incoming>,
        channel: Channel,
        deadline: Instant,
    ) -> Result<Reply, ClientError> {
        let status = response.status();
        // Only a conditional request gets "not modified".
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(Reply {
                response,
                server: channel.server,
                deadline,
                in_use: channel.in_use,
            });
        }
        let body = self.whole_body(response, &channel.server, deadline).await?;
        Err(ClientError::Api {
            status: status.as_u16(),
            problem: Box::new(Problem::from_reply(status, &body)),
            server: channel.server,
        })
    }

    /// Returns a channel to the connected server, or to the first that can be reached.
    async fn channel(&self, over: ConnectionKind) -> Result<Channel, ClientError> {
        let give_up_at = Instant::now() + self.options().patience;
        let mut round = 0;
        loop {
            let connected = match over {
                ConnectionKind::Shared => self.share().await,
                ConnectionKind::Own => self.connect_alone().await,
            };
            let failures = match connected {
                Ok(channel) => return Ok(channel),
                Err(failures) => failures,
            };
            let wait = self.options().back_off.wait(round, random_fraction());
            if Instant::now() + wait >= give_up_at {
                return Err(ClientError::none_reachable(failures));
            }
            tracing::debug!(round, ?wait, "no server reachable; retrying");
            tokio::time::sleep(wait).await;
            round += 1;
        }
    }

    /// Returns the open connection or a new one. Concurrent callers wait for the same
    /// attempt.
    async fn share(&self) -> Result<Channel, Vec<ServerFailure>> {
        let mut slot = self.shared.slot.lock().await;
        if let Some(open) = slot.current.as_ref().filter(|current| current.is_open()) {
            return Ok(open.channel());
        }
        let mut failures = Vec::new();
        let servers = Arc::clone(&slot.servers);
        for index in in_order(servers.len(), slot.preferred) {
            slot.generation += 1;
            match Connection::open(&servers[index], self.options(), slot.generation).await {
                Ok(connection) => {
                    let channel = connection.channel();
                    self.close_when_idle(&connection);
                    slot.preferred = index;
                    slot.current = Some(connection);
                    return Ok(channel);
                }
                Err(failure) => failures.push(log_failure(failure)),
            }
        }
        Err(failures)
    }

    /// Opens a new connection. Only the caller waits for it.
    async fn connect_alone(&self) -> Result<Channel, Vec<ServerFailure>> {
        let (servers, preferred) = {
            let slot = self.shared.slot.lock().await;
            (Arc::clone(&slot.servers), slot.preferred)
        };
        let mut failures = Vec::new();
        for index in in_order(servers.len(), preferred) {
            match Channel::open(&servers[index], self.options()).await {
                Ok(channel) => {
                    let mut slot = self.shared.slot.lock().await;
                    // The list may have been replaced in the meantime.
                    if Arc::ptr_eq(&slot.servers, &servers) {
                        slot.preferred = index;
                    }
                    return Ok(channel);
                }
                Err(failure) => failures.push(log_failure(failure)),
            }
        }
        Err(failures)
    }

    /// Makes the next attempt start with the next server, unless another caller has already
    /// moved on.
    async fn give_up_on(&self, channel: &Channel) {
        let mut slot = self.shared.slot.lock().await;
        let is_newest = match channel.generation {
            Some(generation) => slot
                .current
                .take_if(|current| current.generation == generation)
                .is_some(),
            None => slot.servers[slot.preferred] == channel.server,
        };
        if is_newest {
            slot.preferred = (slot.preferred + 1) % slot.servers.len();
        }
    }

    /// Drops the connection after it has been idle for a while.
    fn close_when_idle(&self, connection: &Connection) {
        let Some(span) = self.options().idle_close else {
            return;
        };
        let (mut uses, generation) = (connection.uses.watch(), connection.generation);
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while uses.unused_for(span).await {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let mut slot = shared.slot.lock().await;
                // A request that started in between keeps it open.
                let idle = |current: &mut Connection| {
                    current.generation == generation && current.uses.is_empty()
                };
                if slot.current.take_if(idle).is_some() {
                    return;
                }
            }
        });
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

/// Yields each of `count` indexes once, starting with `first`.
fn in_order(count: usize, first: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |step| (first + step) % count)
}

fn log_failure(failure: ServerFailure) -> ServerFailure {
    tracing::debug!(server = %failure.server, error = %failure.cause, "server not reachable");
    failure
}

/// Decodes a body. Reads an empty body as `null`, so that `()` fits.
fn decode<T: DeserializeOwned>(body: &[u8], server: ServerAddress) -> Result<T, ClientError> {
    let text = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(text).map_err(|source| ClientError::BadReply {
        server,
        why: "it is not the expected JSON",
        source: Some(source.into()),
    })
}

/// Returns a number between 0 and 1, for waits that must differ between nodes.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness, the waits are merely not spread.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}
