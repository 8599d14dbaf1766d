//! Connections: from `accept` to the last byte.
//!
//! Limits apply to every connection before the peer has proved anything: the number of
//! connections, and the time for a handshake and a request head. Connections without a certificate
//! have places of their own, few of them for each address, so that strangers cannot use up those of
//! nodes and operators. TCP keep-alive detects dead
//! peers, and HTTP/2 pings detect hanging ones. A revocation closes the holder's open
//! connections, because a check at the next request would leave an idle stream open forever.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use bunraku_wire::keep_alive::watch_for_dead_peer;
use bunraku_wire::{PeerIdentity, ReloadableServerTls, Revocations};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::caller::ConnectionInfo;
use super::unread;
use bunraku_control::Clock;
use bunraku_control::error::chain;
use bunraku_control::metrics::Metrics;

/// The concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 64;
/// The same without a certificate. Each may wait for a minute, to join.
const ANONYMOUS_STREAMS: u32 = 4;

/// Limits on connections.
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    pub most_connections: usize,
    /// Maximum number of connections without a certificate. They count in `most_connections` too.
    pub most_anonymous: usize,
    /// Maximum number of connections without a certificate from one address.
    pub most_anonymous_per_address: usize,
    /// Maximum number of concurrent handshakes. They cost processor time before a peer has
    /// proved anything.
    pub most_handshakes: usize,
    pub handshake_timeout: Duration,
    /// Time limit for receiving the head of a request (HTTP/1).
    pub head_timeout: Duration,
    /// Silence before a probe is sent (TCP keep-alive and HTTP/2 pings).
    pub ping_interval: Duration,
    /// Further silence after which the connection is closed.
    pub ping_timeout: Duration,
    /// Time that open requests have to finish at shutdown.
    pub drain: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            most_connections: 100_000,
            most_anonymous: 2_000,
            most_anonymous_per_address: 250,
            most_handshakes: 8_192,
            handshake_timeout: Duration::from_secs(15),
            head_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(20),
        }
    }
}

/// What is served, and how.
pub(crate) struct Serving {
    pub(crate) router: Router,
    pub(crate) tls: ReloadableServerTls,
    pub(crate) revocations: Revocations,
    /// Changes whenever a certificate may have become invalid: after a revocation, or as time
    /// passes.
    pub(crate) doubts: watch::Receiver<u64>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) options: AcceptOptions,
    pub(crate) shutdown: CancellationToken,
}

/// State that all connections share.
struct Shared {
    serving: Serving,
    handshakes: Semaphore,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    anonymous_http2: http2::Builder<TokioExecutor>,
    /// The number of anonymous connections, by address.
    anonymous: Mutex<HashMap<IpAddr, usize>>,
}

impl std::ops::Deref for Shared {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

/// Serves until `shutdown`, then lets open requests finish.
pub(crate) async fn serve(listener: TcpListener, serving: Serving) {
    let (drain, shutdown) = (serving.options.drain, serving.shutdown.clone());
    let places = Arc::new(Semaphore::new(serving.options.most_connections));
    let shared = Arc::new(Shared {
        handshakes: Semaphore::new(serving.options.most_handshakes),
        http1: http1_settings(&serving.options),
        anonymous: Mutex::default(),
        http2: http2_settings(&serving.options, STREAMS),
        anonymous_http2: http2_settings(&serving.options, ANONYMOUS_STREAMS),
        serving,
    });
    let connections = TaskTracker::new();
    loop {
        let (stream, address) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = bunraku_wire::accept(&listener) => accepted,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            shared.metrics.connection_refused("full");
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            shared.metrics.connections.inc();
            connection(stream, address, &shared).await;
            shared.metrics.connections.dec();
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(drain, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            left = connections.len(),
            "closing connections that did not end in time"
        );
    }
}

/// Minimal settings, because fifty thousand agents each hold a stream over such a connection.
fn http1_settings(options: &AcceptOptions) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_headers(64)
        .max_buf_size(16 << 10)
        // Use one buffer for head and body instead of a queue of buffers.
        .writev(false);
    http
}

fn http2_settings(options: &AcceptOptions, streams: u32) -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout)
        .max_concurrent_streams(streams)
        .max_header_list_size(16 << 10)
        .max_send_buf_size(64 << 10)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20);
    http
}

/// A connection that is being served, of either protocol.
type ServedConnection =
    Pin<Box<dyn GracefulConnection<Error = hyper::Error, Output = hyper::Result<()>> + Send>>;

async fn connection(stream: TcpStream, address: SocketAddr, shared: &Shared) {
    // Boxed, because otherwise the state of the setup would stay in this task for the
    // lifetime of the connection.
    let begun = Box::pin(begin(stream, address, shared)).await;
    if let Some((serving, info, _place)) = begun {
        until_over(serving, &info, shared).await;
    }
}

/// The place of a connection without a certificate. Dropping it frees the place.
struct AnonymousPlace<'a> {
    shared: &'a Shared,
    address: IpAddr,
}

impl<'a> AnonymousPlace<'a> {
    /// Takes a place, if there is one.
    fn take(shared: &'a Shared, address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        let mut taken = lock(&shared.anonymous);
        let of_address = taken.get(&address).copied().unwrap_or(0);
        let all: usize = taken.values().sum();
        if of_address >= shared.options.most_anonymous_per_address
            || all >= shared.options.most_anonymous
        {
            return None;
        }
        taken.insert(address, of_address + 1);
        Some(Self { shared, address })
    }
}

impl Drop for AnonymousPlace<'_> {
    fn drop(&mut self) {
        let mut taken = lock(&self.shared.anonymous);
        match taken.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.address)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs the handshake, identifies the peer, and selects the negotiated protocol.
async fn begin(
    stream: TcpStream,
    address: SocketAddr,
    shared: &Shared,
) -> Option<(ServedConnection, ConnectionInfo, Option<AnonymousPlace<'_>>)> {
    let (silence, patience) = (shared.options.ping_interval, shared.options.ping_timeout);
    // These fail only if the peer has already disconnected. The handshake detects that.
    let _ = stream.set_nodelay(true);
    let _ = watch_for_dead_peer(&stream, silence, patience);
    let stream = handshake(stream, address, shared).await?;
    let identity = match PeerIdentity::of(&stream) {
        Ok(identity) => identity.map(Arc::new),
        Err(error) => {
            tracing::info!(%address, error = %chain(&error), "cannot parse a client certificate");
            shared.metrics.connection_refused("identity");
            return None;
        }
    };
    let place = match &identity {
        Some(_) => None,
        None => {
            let place = AnonymousPlace::take(shared, address.ip());
            if place.is_none() {
                shared.metrics.connection_refused("anonymous");
                return None;
            }
            place
        }
    };
    let http2 = if place.is_some() {
        &shared.anonymous_http2
    } else {
        &shared.http2
    };
    let info = ConnectionInfo { address, identity };
    let (router, known) = (shared.router.clone(), info.clone());
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = hyper::service::service_fn(move |mut request| {
        insert(&mut request, &known);
        let (request, lender) = unread::lend_body(request);
        let answering = router.clone().oneshot(request);
        async move {
            let response = answering.await;
            lender.read_rest().await;
            response
        }
    });
    let stream = TokioIo::new(stream);
    let serving: ServedConnection = if is_http2 {
        Box::pin(http2.serve_connection(stream, service))
    } else {
        Box::pin(shared.http1.serve_connection(stream, service))
    };
    Some((serving, info, place))
}

/// Tells the routes who is at the other end.
fn insert(request: &mut hyper::Request<Incoming>, info: &ConnectionInfo) {
    request.extensions_mut().insert(info.clone());
}

/// The life of a connection whose certificate was not valid when it began.
const REFUSING: Duration = Duration::from_secs(10);

/// Serves until the peer finishes, its certificate is revoked, or the server shuts down and
/// has sent the last reply.
async fn until_over(mut serving: ServedConnection, info: &ConnectionInfo, shared: &Shared) {
    let address = info.address;
    let is_void = || {
        info.identity.as_ref().is_some_and(|identity| {
            shared.revocations.contains(&identity.serial)
                || identity.not_after <= shared.clock.now()
        })
    };
    let mut doubts = shared.doubts.clone();
    if is_void() {
        // Every request of it is refused. The peer has time to read why.
        let refusing = tokio::time::timeout(REFUSING, serving).await;
        tracing::info!(%address, in_time = refusing.is_ok(), "refused the connection of a revoked or expired certificate");
        return;
    }
    let mut closing = false;
    loop {
        tokio::select! {
            outcome = serving.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%address, error = %error, "a connection ended");
                }
                return;
            }
            Ok(()) = doubts.changed() => {
                if is_void() {
                    tracing::info!(%address, "closed the connection of a revoked or expired certificate");
                    return;
                }
            }
            () = shared.shutdown.cancelled(), if !closing => {
                serving.as_mut().graceful_shutdown();
                closing = true;
            }
        }
    }
}

async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    shared: &Shared,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let _turn = shared
        .handshakes
        .acquire()
        .await
        .expect("the semaphore is never closed");
    match shared
        .tls
        .accept(stream, shared.options.handshake_timeout)
        .await
    {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::info!(%address, error = %error, "a TLS handshake failed");
            shared.metrics.connection_refused("handshake");
            None
        }
    }
}
