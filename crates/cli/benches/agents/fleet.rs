//! Many agents, indistinguishable from real ones for the server: each has its own name,
//! certificate, TLS connection and command stream.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bunraku_model::{NodeName, Role};
use bunraku_wire::api::{Command, IssueRequest, IssuedCertificate, SendCommand, SentCommand};
use bunraku_wire::endpoints::IssueCertificate;
use bunraku_wire::key::KeyKind;
use bunraku_wire::tls::{ClientTls, Identity};
use bunraku_wire::{PrivateKey, Request};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::server::BenchServer;

/// Connections from one address, well below the number of ports.
const PER_ADDRESS: usize = 5_000;

pub(crate) struct Fleet {
    names: Vec<NodeName>,
    arrivals: mpsc::UnboundedReceiver<Instant>,
    agents: Vec<tokio::task::JoinHandle<()>>,
}

impl Fleet {
    pub(crate) async fn connect(server: &BenchServer, count: usize) -> Self {
        // All agents share one key: the bench does not measure key generation.
        let key = Arc::new(PrivateKey::generate(KeyKind::EcdsaP256).expect("a key"));
        let (sender, arrivals) = mpsc::unbounded_channel();
        let names: Vec<NodeName> = (0..count)
            .map(|number| NodeName::new(format!("node-{number}.bench")).expect("a name"))
            .collect();
        let agents = futures::stream::iter(names.iter().cloned().enumerate())
            .map(|(number, name)| agent(server, number, name, Arc::clone(&key), sender.clone()))
            .buffer_unordered(64)
            .collect()
            .await;
        Self {
            names,
            arrivals,
            agents,
        }
    }

    /// Sends one command to all agents and collects the time at which each receives it.
    pub(crate) async fn wake_all(
        &mut self,
        server: &BenchServer,
        started: Instant,
    ) -> Vec<Duration> {
        let request = SendCommand {
            nodes: self.names.clone(),
            command: Command::Ping,
            ttl_seconds: 600,
        };
        let sending = server
            .operator
            .post::<_, Vec<SentCommand>>("/v1/commands", &request);
        let (sent, samples) = tokio::join!(sending, self.arrived_since(started));
        sent.expect("sent");
        samples
    }
}

impl Fleet {
    /// Fires one trigger at all agents and collects the time at which each receives its run
    /// command. Call this once per fleet: no agent answers, so the next firing would wait.
    #[allow(dead_code, reason = "not every bench fires")]
    pub(crate) async fn fire_at_all(&mut self, server: &BenchServer) -> Vec<Duration> {
        use bunraku_model::FiringId;
        use bunraku_wire::api::triggers::{FireReply, FireTrigger};
        let id = FiringId(uuid::Uuid::now_v7());
        let request = FireTrigger::new(id, self.names.clone());
        let started = Instant::now();
        let firing = server
            .operator
            .post::<_, FireReply>("/v1/triggers/bench/fire", &request);
        let (fired, samples) = tokio::join!(firing, self.arrived_since(started));
        fired.expect("fired");
        samples
    }
}

impl Fleet {
    /// Waits until every agent received something, and returns the time that each took.
    async fn arrived_since(&mut self, started: Instant) -> Vec<Duration> {
        let mut samples = Vec::with_capacity(self.names.len());
        while samples.len() < self.names.len() {
            let arrived = self.arrivals.recv().await.expect("agents are connected");
            samples.push(arrived.duration_since(started));
        }
        samples
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for agent in &self.agents {
            agent.abort();
        }
    }
}

async fn agent(
    server: &BenchServer,
    number: usize,
    name: NodeName,
    key: Arc<PrivateKey>,
    arrivals: mpsc::UnboundedSender<Instant>,
) -> tokio::task::JoinHandle<()> {
    let certificate_request = Request::create(&name, &key).expect("a request");
    let issue = IssueRequest {
        certificate_request,
        role: Role::Node,
        server_names: Vec::new(),
        groups: std::collections::BTreeSet::new(),
        proof: None,
    };
    let issued = server.operator.call_with(IssueCertificate, &issue).await;
    let issued: IssuedCertificate = issued.expect("issued");
    let tls = ClientTls {
        authority_pem: server.authority_pem.clone(),
        revocation_lists_pem: String::new(),
        identity: Some(Identity::from_pem(&issued.certificate, &key).expect("an identity")),
    };
    let mut tls = tls.config().expect("TLS");
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let from = Ipv4Addr::new(
        127,
        0,
        1,
        u8::try_from(1 + number / PER_ADDRESS).expect("few addresses"),
    );
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("a port");
    let stream = socket.connect(server.address).await.expect("connected");
    let host = "127.0.0.1".try_into().expect("a name");
    let stream = connector.connect(host, stream).await.expect("TLS");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP/1.1");
    tokio::spawn(connection);
    let request = hyper::Request::get(format!("/v1/nodes/{name}/stream?version=bench"))
        .header("host", "127.0.0.1")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let mut body = sender
        .send_request(request)
        .await
        .expect("a reply")
        .into_body();
    body.frame().await.expect("a welcome").expect("a frame");
    tokio::spawn(async move {
        // The connection lives as long as its sender.
        let _sender = sender;
        while let Some(Ok(frame)) = body.frame().await {
            let arrived = Instant::now();
            let lines = frame.data_ref().map_or(0, |data| {
                String::from_utf8_lossy(data)
                    .matches("\"message\":\"command\"")
                    .count()
            });
            for _ in 0..lines {
                let _ = arrivals.send(arrived);
            }
        }
    })
}
