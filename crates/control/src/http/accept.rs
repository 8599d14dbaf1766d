//! Connections: from `accept` to the last byte.
//!
//! Every connection has limits before it has proved anything: how many there
//! may be, how long a handshake and a head may take. HTTP/2 pings find peers
//! that are gone. A revocation cuts the holder's open connections, because a
//! check at the next request would leave an idle stream open for ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bunraku_wire::{PeerIdentity, ReloadableServerTls, Revocations};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::caller::ConnectionInfo;
use super::metrics::Metrics;
use super::reply::chain;

/// Limits on connections.
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    pub most_connections: usize,
    /// Handshakes at once: they cost processor time before anyone has proved anything.
    pub most_handshakes: usize,
    pub handshake_timeout: Duration,
    /// Until the head of a request is there (HTTP/1).
    pub head_timeout: Duration,
    /// A ping after so much silence (HTTP/2) ...
    pub ping_interval: Duration,
    /// ... and the end of the connection after so much more.
    pub ping_timeout: Duration,
    /// How long open requests may take to finish at shutdown.
    pub drain: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            most_connections: 100_000,
            most_handshakes: 8_192,
            handshake_timeout: Duration::from_secs(15),
            head_timeout: Duration::from_secs(15),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(20),
        }
    }
}

/// What connections share.
#[derive(Clone)]
struct Shared {
    router: Router,
    tls: ReloadableServerTls,
    revocations: Revocations,
    revoked: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
    handshakes: Arc<Semaphore>,
    options: Arc<AcceptOptions>,
    http: Arc<auto::Builder<TokioExecutor>>,
    shutdown: CancellationToken,
}

/// Serves until `shutdown`, then lets open requests finish.
///
/// `revoked` changes whenever a certificate was revoked.
#[allow(clippy::too_many_arguments, reason = "called once, by the server")]
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: ReloadableServerTls,
    revocations: Revocations,
    revoked: watch::Receiver<u64>,
    metrics: Arc<Metrics>,
    options: AcceptOptions,
    shutdown: CancellationToken,
) {
    let drain = options.drain;
    let places = Arc::new(Semaphore::new(options.most_connections));
    let shared = Shared {
        router,
        tls,
        revocations,
        revoked,
        metrics,
        handshakes: Arc::new(Semaphore::new(options.most_handshakes)),
        http: Arc::new(http_settings(&options)),
        options: Arc::new(options),
        shutdown: shutdown.clone(),
    };
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: let some close first.
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            shared.metrics.connection_refused("full");
            continue;
        };
        let shared = shared.clone();
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
            "some connections did not end in time and are cut"
        );
    }
}

fn http_settings(options: &AcceptOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_headers(64);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout)
        .max_concurrent_streams(64)
        .max_header_list_size(16 << 10)
        .max_send_buf_size(64 << 10)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20);
    http
}

async fn connection(stream: TcpStream, address: SocketAddr, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let Some(stream) = handshake(stream, address, shared).await else {
        return;
    };
    let identity = match PeerIdentity::of(&stream) {
        Ok(identity) => identity.map(Arc::new),
        Err(error) => {
            tracing::info!(%address, error = %chain(&error), "a certificate was not understood");
            shared.metrics.connection_refused("identity");
            return;
        }
    };
    let info = ConnectionInfo { address, identity };
    let serial = info
        .identity
        .as_ref()
        .map(|identity| identity.serial.clone());
    let router = shared.router.clone();
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(info.clone());
        router.clone().oneshot(request)
    });
    let mut revoked = shared.revoked.clone();
    let mut serving = Box::pin(shared.http.serve_connection(TokioIo::new(stream), service));
    let mut closing = false;
    loop {
        tokio::select! {
            outcome = serving.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%address, error = %error, "a connection ended");
                }
                return;
            }
            Ok(()) = revoked.changed() => {
                if serial.as_ref().is_some_and(|serial| shared.revocations.contains(serial)) {
                    tracing::info!(%address, "cut the connection of a revoked certificate");
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
