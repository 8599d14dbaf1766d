//! An authority, identities and a real HTTP server on loopback.

use bunraku_testkit::eventually;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bunraku_model::{NodeName, Role};
use bunraku_wire::authority::Authority;
use bunraku_wire::client::{Client, ClientOptions, ServerAddress};
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::request::{Grant, Request, SignedCertificate};
use bunraku_wire::revocation::Revocations;
use bunraku_wire::tls::{
    ClientTls, Identity, PeerIdentity, ReloadableClientTls, ReloadableServerTls, ServerTls,
};
use bytes::Bytes;
use futures::StreamExt;
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::{SignedDuration, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub(crate) fn authority() -> Authority {
    Authority::create("Test CA", Timestamp::now()).unwrap()
}

pub(crate) fn grant(who: &str, role: Role) -> Grant {
    Grant {
        name: name(who),
        role,
        groups: std::collections::BTreeSet::new(),
        lifetime: DAY,
        dns_names: Vec::new(),
        ip_addresses: match role {
            Role::Server => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            _ => Vec::new(),
        },
        serial: None,
    }
}

pub(crate) fn issue(
    authority: &Authority,
    grant: &Grant,
    now: Timestamp,
) -> (SignedCertificate, Identity) {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let request = Request::from_pem(&Request::create(&grant.name, &key).unwrap()).unwrap();
    let signed = authority.sign(&request, grant, now).unwrap();
    let identity = Identity::from_pem(&signed.pem, &key).unwrap();
    (signed, identity)
}

pub(crate) fn identity(authority: &Authority, who: &str, role: Role) -> Identity {
    issue(authority, &grant(who, role), Timestamp::now()).1
}

pub(crate) fn server_tls(authority: &Authority) -> ServerTls {
    ServerTls {
        identity: identity(authority, "server1", Role::Server),
        authority_pem: authority.certificates_pem(),
        revocation_lists_pem: String::new(),
    }
}

pub(crate) fn client_tls(authority: &Authority, identity: Option<Identity>) -> ReloadableClientTls {
    ReloadableClientTls::new(&ClientTls {
        authority_pem: authority.certificates_pem(),
        revocation_lists_pem: String::new(),
        identity,
    })
    .unwrap()
}

pub(crate) fn options(servers: &[&TestServer], tls: ReloadableClientTls) -> ClientOptions {
    let servers = servers.iter().map(|server| server.address()).collect();
    ClientOptions::new(servers, tls)
}

pub(crate) fn client(authority: &Authority, servers: &[&TestServer]) -> Client {
    let node = identity(authority, "node1", Role::Node);
    Client::new(options(servers, client_tls(authority, Some(node))))
}

type Reply = Response<BoxBody<Bytes, std::io::Error>>;

/// A server with a few routes that tests need.
pub(crate) struct TestServer {
    pub(crate) local: SocketAddr,
    pub(crate) tls: ReloadableServerTls,
    pub(crate) revocations: Revocations,
    /// Number of requests that arrived.
    pub(crate) requests: Arc<AtomicUsize>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Number of connections that are open now.
    open: Arc<AtomicUsize>,
    /// While set, requests arrive but are never answered.
    pub(crate) hangs: Arc<AtomicBool>,
    completed: Arc<AtomicUsize>,
    draining: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(tls: &ServerTls) -> Self {
        Self::start_at(tls, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    pub(crate) async fn start_at(tls: &ServerTls, at: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let server = Self {
            local: listener.local_addr().unwrap(),
            tls: ReloadableServerTls::new(tls).unwrap(),
            revocations: Revocations::default(),
            requests: Arc::default(),
            connections: Arc::default(),
            open: Arc::default(),
            hangs: Arc::default(),
            completed: Arc::default(),
            draining: watch::Sender::new(false),
            task: tokio::spawn(async {}),
        };
        let shared = State {
            tls: server.tls.clone(),
            revocations: server.revocations.clone(),
            requests: Arc::clone(&server.requests),
            connections: Arc::clone(&server.connections),
            open: Arc::clone(&server.open),
            hangs: Arc::clone(&server.hangs),
            completed: Arc::clone(&server.completed),
            draining: server.draining.subscribe(),
        };
        let task = tokio::spawn(serve(listener, shared));
        Self { task, ..server }
    }

    pub(crate) fn address(&self) -> ServerAddress {
        ServerAddress::new("127.0.0.1", self.local.port()).unwrap()
    }

    /// Stops immediately: closes all connections and stops listening.
    pub(crate) async fn die(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Stops gracefully: finishes requests in progress and accepts nothing new.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn arrived(&self, count: usize) {
        eventually(async || self.requests() >= count).await;
    }

    /// Waits until this many connections are open.
    pub(crate) async fn has_open(&self, count: usize) {
        eventually(async || self.open.load(Ordering::SeqCst) == count).await;
    }

    /// Returns the number of uploads that arrived complete.
    pub(crate) fn completed(&self) -> usize {
        self.completed.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct State {
    tls: ReloadableServerTls,
    revocations: Revocations,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
    completed: Arc<AtomicUsize>,
    draining: watch::Receiver<bool>,
}

async fn serve(listener: TcpListener, state: State) {
    // Dropped with this task, which drops every connection.
    let mut connections = tokio::task::JoinSet::new();
    let mut draining = state.draining.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                connections.spawn(serve_one(accepted.unwrap().0, state.clone()));
            }
            _ = draining.wait_for(|draining| *draining) => break,
        }
    }
    drop(listener);
    connections.join_all().await;
}

async fn serve_one(stream: TcpStream, state: State) {
    let Ok(stream) = state.tls.accept(stream, Duration::from_secs(10)).await else {
        return;
    };
    state.connections.fetch_add(1, Ordering::SeqCst);
    let peer = PeerIdentity::of(&stream).unwrap();
    let mut draining = state.draining.clone();
    let open = Open::new(&state);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (state, peer) = (state.clone(), peer.clone());
        async move { Ok::<_, Infallible>(answer(request, &state, peer).await) }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http = http.http2_only();
    }
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = draining.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
    drop(open);
}

/// An open connection, counted until dropped.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(state: &State) -> Self {
        state.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&state.open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(
    request: http::Request<Incoming>,
    state: &State,
    peer: Option<PeerIdentity>,
) -> Reply {
    state.requests.fetch_add(1, Ordering::SeqCst);
    if state.hangs.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let path = request.uri().path().to_owned();
    if path == "/open" {
        return json(StatusCode::OK, r#""welcome""#);
    }
    let Some(peer) = peer else {
        let text = r#"{"error":{"code":"certificate_required","message":"this needs a certificate","hint":"join first"}}"#;
        return json(StatusCode::UNAUTHORIZED, text);
    };
    if state.revocations.contains(&peer.serial) {
        let text =
            r#"{"error":{"code":"certificate_revoked","message":"the certificate was revoked"}}"#;
        return json(StatusCode::FORBIDDEN, text);
    }
    match path.as_str() {
        "/who" => json(
            StatusCode::OK,
            &format!(r#"{{"name":"{}","role":"{}"}}"#, peer.name, peer.role),
        ),
        "/version" => json(StatusCode::OK, &format!("\"{:?}\"\n", request.version())),
        "/echo" => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(full_body(body))
        }
        "/slow" => std::future::pending().await,
        "/garbage" => json(StatusCode::OK, "<html>it works</html>"),
        "/broken" => json(StatusCode::BAD_GATEWAY, "<html>oops</html>"),
        "/empty" => json(StatusCode::NO_CONTENT, ""),
        "/count" => count(request.into_body(), state).await,
        "/large" => streamed(futures::stream::iter(
            (0..256).map(|_| Ok(Bytes::from(vec![7; 64 << 10]))),
        )),
        "/three" => streamed(futures::stream::iter(
            ["{\"n\":1}\n\n{\"n\"", ":2}\n", "\n", "{\"n\":3}\n"]
                .map(|text| Ok(Bytes::from_static(text.as_bytes()))),
        )),
        "/cut-off" => streamed(futures::stream::iter([Ok(Bytes::from_static(
            b"{\"n\":1}\n{\"n",
        ))])),
        "/silent" => streamed(
            futures::stream::iter([Ok(Bytes::from_static(b"{\"n\":1}\n"))])
                .chain(futures::stream::pending()),
        ),
        "/beating" => streamed(beating()),
        "/garbage-line" => streamed(futures::stream::iter([Ok(Bytes::from_static(b"<html>\n"))])),
        "/short" => short(),
        "/endless" => streamed(futures::stream::repeat_with(|| {
            Ok(Bytes::from_static(b"no line end in sight "))
        })),
        _ => json(
            StatusCode::NOT_FOUND,
            r#"{"error":{"code":"not_found","message":"there is nothing here","hint":"look elsewhere"}}"#,
        ),
    }
}

async fn count(mut body: Incoming, state: &State) -> Reply {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes += frame.data_ref().map_or(0, Bytes::len),
            Err(_) => return json(StatusCode::BAD_REQUEST, ""),
        }
    }
    state.completed.fetch_add(1, Ordering::SeqCst);
    json(StatusCode::OK, &bytes.to_string())
}

/// Sends a heartbeat every 100 ms for two seconds, then one value.
fn beating() -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send + Sync {
    futures::stream::unfold(0, |beat| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let text: &[u8] = match beat {
            0..20 => b"\n",
            20 => b"{\"n\":1}\n",
            _ => return None,
        };
        Some((Ok(Bytes::from_static(text)), beat + 1))
    })
}

fn short() -> Reply {
    let mut reply = streamed(futures::stream::iter([Ok(Bytes::from_static(b"abc"))]));
    let headers = reply.headers_mut();
    headers.insert(http::header::CONTENT_LENGTH, 100.into());
    reply
}

fn full_body(body: Bytes) -> BoxBody<Bytes, std::io::Error> {
    Full::new(body).map_err(|never| match never {}).boxed()
}

fn json(status: StatusCode, text: &str) -> Reply {
    let mut reply = Response::new(full_body(Bytes::copy_from_slice(text.as_bytes())));
    *reply.status_mut() = status;
    reply
}

fn streamed(
    pieces: impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send + Sync + 'static,
) -> Reply {
    let frames = pieces.map(|piece| piece.map(Frame::data));
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}

/// Starts a TCP relay that can be made to swallow everything without closing.
pub(crate) async fn relay(to: SocketAddr) -> (ServerAddress, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut stopped = stopped.clone();
            tokio::spawn(async move {
                if *stopped.borrow() {
                    return;
                }
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
                // Both ends stay open, and no data moves.
                std::future::pending::<()>().await;
            });
        }
    });
    (ServerAddress::new("127.0.0.1", port).unwrap(), stop)
}
