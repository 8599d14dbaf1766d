//! Measures the cost of an idle connection to the server, and of a first request to a command
//! line.
//!
//! `cargo bench -p bunraku-wire --bench idle_connections -- [connections]`
//!
//! The server is a separate process, so that only its own memory is measured.

use std::convert::Infallible;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bunraku_model::{NodeName, Role};
use bunraku_wire::authority::Authority;
use bunraku_wire::client::{Client, ClientOptions, Download, Lines, ServerAddress};
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::request::{Grant, Request};
use bunraku_wire::tls::{ClientTls, Identity, ReloadableClientTls, ReloadableServerTls, ServerTls};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::{SignedDuration, Timestamp};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

/// TLS alone, and TLS below an HTTP/1.1 or HTTP/2 reply that does not end.
const MODES: [&str; 3] = ["tls", "http1", "http2"];

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, directory, ..] = arguments.as_slice()
        && MODES.contains(&mode.as_str())
    {
        return runtime.block_on(serve(mode.clone(), Path::new(directory)));
    }
    let connections = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(2000);
    runtime.block_on(measure(connections))
}

async fn serve(mode: String, directory: &Path) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    let tls = ReloadableServerTls::new(&ServerTls {
        identity: Identity::load(&directory.join("server.pem"), &directory.join("server.key"))?,
        authority_pem: read("ca.pem")?,
        revocation_lists_pem: read("crl.pem")?,
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (tls, mode) = (tls.clone(), mode.clone());
        tokio::spawn(async move {
            let Ok(mut stream) = tls.accept(stream, Duration::from_secs(60)).await else {
                return;
            };
            match mode.as_str() {
                "http1" => serve_http1(stream).await,
                "http2" => serve_http2(stream).await,
                _ => drop(stream.read(&mut [0; 1]).await),
            }
        });
    }
}

type Reply = http::Response<BoxBody<Bytes, Infallible>>;

/// Answers every request with a stream that sends one value and then nothing.
async fn answer(_: http::Request<Incoming>) -> std::result::Result<Reply, Infallible> {
    let hello = Ok(Frame::data(Bytes::from_static(b"1\n")));
    let body = futures::stream::iter([hello]).chain(futures::stream::pending());
    Ok(http::Response::new(BodyExt::boxed(StreamBody::new(body))))
}

async fn serve_http1(stream: TlsStream<TcpStream>) {
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

async fn serve_http2(stream: TlsStream<TcpStream>) {
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

struct Server {
    process: Child,
    address: ServerAddress,
}

impl Server {
    fn start(mode: &str, directory: &Path) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(mode)
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut port = String::new();
        BufReader::new(output).read_line(&mut port)?;
        let address = ServerAddress::new("127.0.0.1", port.trim().parse()?)?;
        Ok(Self { process, address })
    }

    /// Returns the resident memory in bytes.
    fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .ok_or("no VmRSS")?;
        let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn measure(connections: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let client = prepare(directory.path())?;
    for mode in MODES {
        let server = Server::start(mode, directory.path())?;
        // The first connections pay for the shared state.
        let warm = open(mode, &server, &client, 100).await?;
        let before = server.memory()?;
        let start = Instant::now();
        let open = open(mode, &server, &client, connections).await?;
        let took = start.elapsed();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = server.memory()?;
        println!(
            "{mode:>5}: {connections} idle connections, {} bytes each, {:.0} connections/s",
            after.saturating_sub(before) / connections as u64,
            connections as f64 / took.as_secs_f64(),
        );
        drop((warm, open));
    }
    first_requests(directory.path()).await
}

/// Measures the cost of `bunraku node list` before its answer: read the files, set up TLS,
/// connect, send the request.
async fn first_requests(directory: &Path) -> Result<()> {
    let server = Server::start("http1", directory)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        let client = Client::new(ClientOptions::new(
            vec![server.address.clone()],
            client_tls(directory)?,
        ));
        let mut lines: Lines<u8> = client.stream("/").await?;
        lines.next().await.ok_or("no line")??;
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "first request on a new connection: median {:?}, slowest {:?}",
        times[times.len() / 2],
        times[times.len() - 1],
    );
    Ok(())
}

enum Open {
    Tls(#[allow(dead_code)] Box<tokio_rustls::client::TlsStream<TcpStream>>),
    Http1(#[allow(dead_code)] Box<Lines<u8>>),
    Http2(
        #[allow(dead_code)] Client,
        #[allow(dead_code)] Box<Download>,
    ),
}

async fn open(
    mode: &str,
    server: &Server,
    tls: &ReloadableClientTls,
    count: usize,
) -> Result<Vec<Open>> {
    futures::stream::iter(0..count)
        .map(|_| open_one(mode, server, tls))
        .buffer_unordered(32)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect()
}

async fn open_one(mode: &str, server: &Server, tls: &ReloadableClientTls) -> Result<Open> {
    if mode == "tls" {
        let stream = TcpStream::connect(("127.0.0.1", server.address.port())).await?;
        let name = rustls::pki_types::ServerName::try_from("127.0.0.1")?;
        let connector = tokio_rustls::TlsConnector::from(tls.config());
        return Ok(Open::Tls(Box::new(connector.connect(name, stream).await?)));
    }
    let mut options = ClientOptions::new(vec![server.address.clone()], tls.clone());
    options.connect_timeout = Duration::from_secs(60);
    let client = Client::new(options);
    if mode == "http1" {
        let mut lines = client.stream("/").await?;
        lines.next().await.ok_or("no line")??;
        return Ok(Open::Http1(Box::new(lines)));
    }
    let mut download = client.download("/").await?;
    download.next().await.ok_or("no piece")??;
    Ok(Open::Http2(client, Box::new(download)))
}

fn prepare(directory: &Path) -> Result<ReloadableClientTls> {
    let now = Timestamp::now();
    let authority = Authority::create("Bench CA", now)?;
    let list = authority.revocation_list(&[], 1, now, SignedDuration::from_hours(24))?;
    std::fs::write(directory.join("ca.pem"), authority.certificates_pem())?;
    std::fs::write(directory.join("crl.pem"), list.to_pem())?;
    for (name, role) in [("server", Role::Server), ("node", Role::Node)] {
        let key = PrivateKey::generate(KeyKind::EcdsaP256)?;
        let node = NodeName::new(name)?;
        let grant = Grant {
            name: node.clone(),
            role,
            groups: std::collections::BTreeSet::new(),
            lifetime: SignedDuration::from_hours(24),
            dns_names: Vec::new(),
            ip_addresses: match role {
                Role::Server => vec!["127.0.0.1".parse()?],
                _ => Vec::new(),
            },
            serial: None,
        };
        let request = Request::from_pem(&Request::create(&node, &key)?)?;
        let signed = authority.sign(&request, &grant, now)?;
        std::fs::write(directory.join(format!("{name}.pem")), signed.pem)?;
        key.save(&directory.join(format!("{name}.key")))?;
    }
    client_tls(directory)
}

fn client_tls(directory: &Path) -> Result<ReloadableClientTls> {
    Ok(ReloadableClientTls::new(&ClientTls {
        authority_pem: std::fs::read_to_string(directory.join("ca.pem"))?,
        revocation_lists_pem: std::fs::read_to_string(directory.join("crl.pem"))?,
        identity: Some(Identity::load(
            &directory.join("node.pem"),
            &directory.join("node.key"),
        )?),
    })?)
}
