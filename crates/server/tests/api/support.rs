//! A server on loopback, and callers of every role.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bunraku_compile::compiles::{CompileOptions, ExternalPrograms, StateFunctions, WorkerOptions};
use bunraku_compile::state_world::FindStateFunctions;
use bunraku_control::Clock;
use bunraku_model::{NodeName, Role};
use bunraku_server::{AcceptOptions, RouterOptions, Server, ServerOptions, ServiceOptions};
use bunraku_states::{Function, Lookup};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs, SharedBlobs, StoreBlobs};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, SharedStore};
use bunraku_wire::api::{
    IssueRequest, IssuedCertificate, JoinReply, JoinRequest, NewToken, StreamMessage, Target,
    TokenRequest,
};
use bunraku_wire::client::Lines;
use bunraku_wire::key::KeyKind;
use bunraku_wire::tls::{ClientTls, Identity};
use bunraku_wire::{
    Authority, Client, ClientError, ClientOptions, Credentials, PrivateKey, ReloadableClientTls,
    Request, ServerAddress,
};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

/// The engine functions that the state trees of these tests use.
#[derive(Debug)]
struct EngineFunctions;

impl FindStateFunctions for EngineFunctions {
    fn function(&self, name: &str) -> Lookup {
        match name {
            "file.managed" => Lookup::Known(Function {
                type_name: "file".to_owned(),
                arguments: vec![("contents".to_owned(), "content".to_owned())],
                name_parameter: "path".to_owned(),
                parameters: ["path", "content", "source", "mode"]
                    .map(str::to_owned)
                    .to_vec(),
                ..Function::default()
            }),
            _ => Lookup::UnknownModule,
        }
    }

    fn functions(&self) -> Vec<String> {
        vec!["file.managed".to_owned()]
    }
}

impl StateFunctions for EngineFunctions {
    fn with_modules(
        &self,
        _: &[bunraku_module::VerifiedModule],
    ) -> Result<Arc<dyn StateFunctions>, String> {
        Ok(Arc::new(Self))
    }
}

pub(crate) use bunraku_testkit::{appears, eventually, soon};

pub(crate) struct TestServer {
    pub(crate) server: Option<Server>,
    pub(crate) operator: Client,
    authority_pem: String,
    options: ServerOptions,
    embedded: Option<EmbeddedStore>,
    pub(crate) shared: SharedStore,
    pub(crate) blobs: SharedBlobs,
    directory: Arc<TempDir>,
    /// The number of seconds by which the server's clock is behind.
    behind: Arc<AtomicI64>,
}

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a test's name is valid")
}

/// Reads the messages that every stream begins with, and returns the target among them.
pub(crate) async fn opened(stream: &mut Lines<StreamMessage>) -> Option<Target> {
    match soon(stream.next()).await {
        Some(Ok(StreamMessage::Welcome { .. })) => {}
        other => panic!("a welcome was expected, not {other:?}"),
    }
    match soon(stream.next()).await {
        Some(Ok(StreamMessage::Target { target })) => target,
        other => panic!("a target was expected, not {other:?}"),
    }
}

/// Opens a node's command stream, and reads the messages that every stream begins with.
pub(crate) async fn open_stream(node: &Client, name: &str) -> Lines<StreamMessage> {
    open_stream_with_target(node, name).await.0
}

/// Like [`open_stream`], but also returns the target that the stream began with.
pub(crate) async fn open_stream_with_target(
    node: &Client,
    name: &str,
) -> (Lines<StreamMessage>, Option<Target>) {
    let path = format!("/v1/nodes/{name}/stream?version=1");
    let mut stream = node.stream(&path).await.expect("a stream");
    let target = opened(&mut stream).await;
    (stream, target)
}

pub(crate) fn options(data_dir: &Path) -> ServerOptions {
    ServerOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        name: name("server.test"),
        server_names: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
        health_listen: None,
        services: ServiceOptions {
            server_ttl: Duration::from_secs(2),
            heartbeat: Duration::from_secs(60),
            compiles: CompileOptions {
                concurrency: 4,
                lease: Duration::from_secs(3),
                functions: Arc::new(EngineFunctions),
                workers: Arc::new(WorkerOptions {
                    external: ExternalPrograms::Trusted,
                    ..WorkerOptions::default()
                }),
                ..CompileOptions::default()
            },
            ..ServiceOptions::new(data_dir)
        },
        router: RouterOptions::default(),
        accept: AcceptOptions {
            drain: Duration::from_secs(30),
            ..AcceptOptions::default()
        },
    }
}

impl TestServer {
    /// Sends a certificate request that waits for a person.
    pub(crate) async fn queue_request(&self, node: &str) {
        let pem = request(node).1;
        self.join(&pem, None).await.expect("queued");
    }

    pub(crate) async fn reject_request(&self, node: &str) {
        let path = format!("/v1/certificate-requests/{node}");
        self.operator.delete::<()>(&path).await.expect("rejected");
    }

    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(adjust: impl FnOnce(&mut ServerOptions)) -> Self {
        let directory = Arc::new(TempDir::new().expect("a directory"));
        let mut options = options(directory.path());
        adjust(&mut options);
        Self::open(directory, options).await
    }

    /// Starts a server on the same directory, after a shutdown.
    pub(crate) async fn open(directory: Arc<TempDir>, options: ServerOptions) -> Self {
        let store = directory.path().join("store");
        let embedded = EmbeddedStore::open(&store, EmbeddedOptions::default())
            .await
            .expect("the store opens");
        let shared: SharedStore = Arc::new(embedded.clone());
        let blobs = DirectoryBlobs::in_directory(
            directory.path().join("blobs"),
            shared.clone(),
            BlobOptions::default(),
        );
        let blobs: SharedBlobs = Arc::new(blobs.await.expect("the blobs open"));
        Self::on(directory, options, shared, blobs, Some(embedded)).await
    }

    /// Starts a server on a store that others may also use.
    pub(crate) async fn on_shared_store(
        directory: Arc<TempDir>,
        mut options: ServerOptions,
        store: SharedStore,
    ) -> Self {
        options.services.exclusive_store = false;
        options.services.store_kind = "etcd";
        let blobs: SharedBlobs =
            Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
        Self::on(directory, options, store, blobs, None).await
    }

    async fn on(
        directory: Arc<TempDir>,
        options: ServerOptions,
        store: SharedStore,
        blobs: SharedBlobs,
        embedded: Option<EmbeddedStore>,
    ) -> Self {
        // If a test creates a Puppet directory, its server uses that authority.
        let puppet = directory.path().join("puppet");
        let authority = if puppet.exists() {
            Authority::from_puppet(&puppet).expect("Puppet's authority")
        } else {
            Authority::load_or_create(&directory.path().join("ca"), Timestamp::now())
                .expect("an authority")
        };
        let authority = Arc::new(authority);
        let authority_pem = authority.certificates_pem();
        let (shared, kept) = (store.clone(), blobs.clone());
        let behind = Arc::new(AtomicI64::new(0));
        let delay = Arc::clone(&behind);
        let clock = Clock::new(move || {
            Timestamp::now() - SignedDuration::from_secs(delay.load(Ordering::SeqCst))
        });
        let server = Server::start(options.clone(), store, blobs, authority, clock);
        let server = server.await.expect("the server starts");
        let credentials = Credentials::new(options.services.data_dir.join("operator"));
        let identity = credentials
            .identity()
            .expect("readable")
            .expect("made at the first start");
        let operator = client(&server, &authority_pem, Some(identity));
        Self {
            server: Some(server),
            operator,
            authority_pem,
            options,
            embedded,
            shared,
            blobs: kept,
            directory,
            behind,
        }
    }

    pub(crate) fn running(&self) -> &Server {
        self.server.as_ref().expect("the server runs")
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.running().address()
    }

    pub(crate) fn catalogs(&self) -> &bunraku_compile::catalogs::Catalogs {
        self.running().catalogs()
    }

    pub(crate) fn environments_and_compiles(
        &self,
    ) -> (
        &bunraku_compile::environments::Environments,
        &bunraku_compile::compiles::Compiles,
    ) {
        (self.running().environments(), self.running().compiles())
    }

    pub(crate) fn store(&self) -> &EmbeddedStore {
        self.embedded.as_ref().expect("the store is embedded")
    }

    pub(crate) fn directory(&self) -> Arc<TempDir> {
        Arc::clone(&self.directory)
    }

    pub(crate) fn options(&self) -> ServerOptions {
        self.options.clone()
    }

    /// Lets a node join that many hours ago: its certificate is that old.
    pub(crate) async fn joined_since(&self, node: &str, hours: i64) -> (String, PrivateKey) {
        self.behind.store(hours * 3600, Ordering::SeqCst);
        let joined = self.joined(node).await;
        self.behind.store(0, Ordering::SeqCst);
        joined
    }

    /// Issues an operator's certificate that many hours ago.
    pub(crate) async fn operator_since(
        &self,
        operator: &str,
        groups: &[&str],
        hours: i64,
    ) -> (String, PrivateKey) {
        self.behind.store(hours * 3600, Ordering::SeqCst);
        let issued = self.operator_with_key(operator, groups).await;
        self.behind.store(0, Ordering::SeqCst);
        issued
    }

    /// Sends a request without a token that many hours ago.
    pub(crate) async fn sent_since(&self, node: &str, hours: i64) {
        self.behind.store(hours * 3600, Ordering::SeqCst);
        // Sent again, if it is pending already.
        let _ = self.join(&request(node).1, None).await;
        self.behind.store(0, Ordering::SeqCst);
    }

    /// Returns a caller without a certificate.
    pub(crate) fn stranger(&self) -> Client {
        client(self.running(), &self.authority_pem, None)
    }

    pub(crate) fn client_with(&self, certificate: &str, key: &PrivateKey) -> Client {
        let identity = Identity::from_pem(certificate, key).expect("a certificate with its key");
        client(self.running(), &self.authority_pem, Some(identity))
    }

    pub(crate) async fn token(&self, node: Option<&str>) -> String {
        let request = TokenRequest {
            ttl_seconds: 600,
            node: node.map(name),
        };
        let token: NewToken = self
            .operator
            .post("/v1/tokens", &request)
            .await
            .expect("a token");
        token.token
    }

    /// Lets all nodes do something: `triggers/go`, `locks/db` or `once/app`.
    pub(crate) async fn permit(&self, what: &str) {
        let all = ["*"];
        let body = match what.split_once('/').map(|(kind, _)| kind) {
            Some("triggers") => serde_json::json!({"fired_by": all, "hosts": all}),
            Some("locks") => serde_json::json!({"may_hold": all}),
            _ => serde_json::json!({"init_on": all, "contributors": all}),
        };
        let path = format!("/v1/{what}/permissions");
        let permitted = self.operator.post::<_, ()>(&path, &body).await;
        permitted.expect("permitted");
    }

    /// Creates an operator with these groups.
    pub(crate) async fn operator(&self, operator: &str, groups: &[&str]) -> Client {
        let (certificate, key) = self.operator_with_key(operator, groups).await;
        self.client_with(&certificate, &key)
    }

    pub(crate) async fn operator_with_key(
        &self,
        operator: &str,
        groups: &[&str],
    ) -> (String, PrivateKey) {
        let groups = groups.iter().map(|group| group.parse().expect("a group"));
        self.issue(operator, |issue| issue.groups = groups.collect())
            .await
    }

    /// Has a certificate issued: an operator's, unless the request is changed.
    pub(crate) async fn issue(
        &self,
        name: &str,
        change: impl FnOnce(&mut IssueRequest),
    ) -> (String, PrivateKey) {
        let (key, certificate_request) = request(name);
        let mut issue = IssueRequest {
            certificate_request,
            role: Role::Operator,
            server_names: Vec::new(),
            groups: std::collections::BTreeSet::new(),
            proof: None,
        };
        change(&mut issue);
        let issued: IssuedCertificate = self
            .operator
            .post("/v1/certificates/issue", &issue)
            .await
            .expect("a certificate");
        (issued.certificate, key)
    }

    /// Adds an access rule, and returns its number.
    pub(crate) async fn grant(&self, subject: &str, grants: &str, scope: &str) -> u64 {
        let rule = serde_json::json!({"subject": subject, "grants": grants, "scope": scope});
        let granted: serde_json::Value = self
            .operator
            .post("/v1/access/rules", &rule)
            .await
            .expect("granted");
        granted["rule"]["id"].as_u64().expect("a number")
    }

    /// Creates a node that joined with a token.
    pub(crate) async fn node(&self, node: &str) -> Client {
        self.node_with_key(node).await.0
    }

    /// Creates a node that detects a dead connection within a few such intervals.
    pub(crate) async fn watchful_node(&self, node: &str, keep_alive: Duration) -> Client {
        let (certificate, key) = self.joined(node).await;
        let identity = Identity::from_pem(&certificate, &key).expect("a certificate");
        let mut options = client_options(self.running(), &self.authority_pem, Some(identity));
        options.keep_alive = Some(keep_alive);
        Client::new(options)
    }

    pub(crate) async fn node_with_key(&self, node: &str) -> (Client, PrivateKey) {
        let (certificate, key) = self.joined(node).await;
        (self.client_with(&certificate, &key), key)
    }

    /// Creates a node that treats two seconds of silence as the end.
    pub(crate) async fn impatient_node(&self, node: &str) -> Client {
        let (certificate, key) = self.joined(node).await;
        let identity = Identity::from_pem(&certificate, &key).expect("an identity");
        let mut options = client_options(self.running(), &self.authority_pem, Some(identity));
        options.idle_timeout = Duration::from_secs(2);
        Client::new(options)
    }

    /// Creates a node that returns to a server that knows its key.
    pub(crate) async fn known_node(&self, node: &str, key: &PrivateKey) -> Client {
        let request = Request::create(&name(node), key).expect("a request");
        match self.join(&request, None).await {
            Ok(JoinReply::Signed { certificate, .. }) => self.client_with(&certificate, key),
            other => panic!("the same key is known, not {other:?}"),
        }
    }

    pub(crate) async fn joined(&self, node: &str) -> (String, PrivateKey) {
        let token = self.token(Some(node)).await;
        let (key, request) = request(node);
        match self
            .join(&request, Some(token))
            .await
            .expect("the token is good")
        {
            JoinReply::Signed { certificate, .. } => (certificate, key),
            JoinReply::Waiting { .. } => panic!("a token lets a node in at once"),
        }
    }

    pub(crate) async fn join(
        &self,
        request: &str,
        token: Option<String>,
    ) -> Result<JoinReply, ClientError> {
        let join = JoinRequest {
            certificate_request: request.to_owned(),
            token,
            wait_seconds: 0,
        };
        self.stranger().post("/v1/join", &join).await
    }

    pub(crate) async fn shutdown(&mut self) {
        if let Some(server) = self.server.take() {
            soon(server.shutdown()).await;
        }
        if let Some(embedded) = self.embedded.take() {
            embedded.close().await.expect("the store closes");
        }
    }
}

/// Returns the server's metrics.
pub(crate) async fn metrics(server: &TestServer) -> String {
    text_at(server, "/metrics").await
}

/// Returns the text at a path, as an operator sees it.
pub(crate) async fn text_at(server: &TestServer, path: &str) -> String {
    let mut download = server.operator.download(path).await.expect("a text");
    let mut text = Vec::new();
    while let Some(chunk) = download.next().await {
        text.extend_from_slice(&chunk.expect("a chunk"));
    }
    String::from_utf8(text).expect("text")
}

/// Creates a new key and a request for this name.
pub(crate) fn request(node: &str) -> (PrivateKey, String) {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
    let request = Request::create(&name(node), &key).expect("a request");
    (key, request)
}

fn client(server: &Server, authority_pem: &str, identity: Option<Identity>) -> Client {
    Client::new(client_options(server, authority_pem, identity))
}

fn client_options(
    server: &Server,
    authority_pem: &str,
    identity: Option<Identity>,
) -> ClientOptions {
    let tls = ClientTls {
        authority_pem: authority_pem.to_owned(),
        revocation_lists_pem: String::new(),
        identity,
    };
    let tls = ReloadableClientTls::new(&tls).expect("TLS");
    let address = ServerAddress::new(&server.address().ip().to_string(), server.address().port());
    let mut options = ClientOptions::new(vec![address.expect("an address")], tls);
    options.request_timeout = Duration::from_secs(60);
    options
}

/// Returns the status of a refused call.
pub(crate) fn status<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> u16 {
    let error = outcome.expect_err("it must be refused");
    error
        .status()
        .unwrap_or_else(|| panic!("the server answered nothing: {error}"))
}
