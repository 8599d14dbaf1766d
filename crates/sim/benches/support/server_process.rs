//! The real server in its own process: this program, started again.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bunraku_compile::targets::StoredTarget;
use bunraku_control::{Clock, Nodes, keys};
use bunraku_model::{CatalogId, ContentId, NodeName, ReleaseNumber, default_environment};
use bunraku_server::{AcceptOptions, RouterOptions, Server, ServerOptions, ServiceOptions};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, SharedStore, Transaction};
use bunraku_wire::api::{RunMode, Target};
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{
    Authority, Client, ClientOptions, Credentials, ReloadableClientTls, ServerAddress,
};
use futures::StreamExt;
use tempfile::TempDir;

const SERVE: &str = "--serve";

pub(crate) fn name(number: u64) -> NodeName {
    NodeName::new(format!("node-{number}.bench")).expect("a name")
}

/// Returns the directory to serve, which is set only in the server process.
pub(crate) fn directory_to_serve() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip_while(|word| word != SERVE);
    words.next()?;
    words.next().map(PathBuf::from)
}

async fn open_store(directory: &Path) -> EmbeddedStore {
    let store = EmbeddedStore::open(&directory.join("store"), EmbeddedOptions::default()).await;
    store.expect("the store opens")
}

/// Serves until standard input ends, which happens when the parent process exits.
pub(crate) async fn serve(directory: &Path) {
    let store: SharedStore = Arc::new(open_store(directory).await);
    let place = directory.join("blobs");
    let blobs = DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default()).await;
    let blobs = Arc::new(blobs.expect("the blobs open"));
    let clock = Clock::system();
    let authority = Authority::load_or_create(&directory.join("ca"), clock.now());
    let authority = Arc::new(authority.expect("an authority"));
    let server = Server::start(options(directory), store, blobs, authority, clock).await;
    let server = server.expect("the server starts");
    println!("{}", server.address());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("it waits").expect("readable");
}

fn options(directory: &Path) -> ServerOptions {
    ServerOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        name: NodeName::new("server.bench").expect("a name"),
        server_names: vec!["127.0.0.1".to_owned()],
        health_listen: None,
        services: ServiceOptions::new(directory),
        router: RouterOptions::default(),
        accept: AcceptOptions::default(),
    }
}

/// Fills the store with nodes that have a target each, as after a release.
async fn fill(directory: &Path, nodes: u64) {
    let embedded = open_store(directory).await;
    let store: SharedStore = Arc::new(embedded.clone());
    let registry = Nodes::new(store.clone(), Clock::system());
    let writes = futures::stream::iter(0..nodes).map(async |number| {
        let name = name(number);
        registry.register(&name).await.expect("registered");
        let content = ContentId::of(name.as_str().as_bytes());
        let target = StoredTarget {
            target: Target {
                environment: default_environment(),
                release: ReleaseNumber(1),
                catalog: CatalogId(content),
                code_id: None,
                mode: RunMode::Enforce,
            },
            content,
            previous: None,
        };
        let text = serde_json::to_string(&target).expect("plain data");
        let transaction = Transaction::new().put(keys::target(&name), text);
        store.commit(transaction).await.expect("written");
    });
    writes.buffer_unordered(64).for_each(async |()| {}).await;
    embedded.close().await.expect("closed");
}

pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) operator: Client,
    pub(crate) authority_pem: String,
    _directory: TempDir,
}

impl ServerProcess {
    pub(crate) async fn start(nodes: u64) -> Self {
        let directory = TempDir::new().expect("a directory");
        fill(directory.path(), nodes).await;
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(SERVE)
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("its first line");
        let address: SocketAddr = line.trim().parse().expect("an address");
        let credentials = Credentials::new(directory.path().join("operator"));
        let authority_pem = credentials.authority_pem().expect("readable");
        let authority_pem = authority_pem.expect("made at the first start");
        let tls = ClientTls {
            authority_pem: authority_pem.clone(),
            revocation_lists_pem: String::new(),
            identity: credentials.identity().expect("readable"),
        };
        let tls = ReloadableClientTls::new(&tls).expect("TLS");
        let server = ServerAddress::new("127.0.0.1", address.port()).expect("an address");
        Self {
            child,
            address,
            operator: Client::new(ClientOptions::new(vec![server], tls)),
            authority_pem,
            _directory: directory,
        }
    }

    /// Returns the processor time of all its threads in seconds. The kernel counts hundredths.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("it runs");
        // The program's name, in parentheses, may contain blanks.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        (ticks(11) + ticks(12)) as f64 / 100.0
    }

    pub(crate) fn end(mut self) {
        self.child.kill().expect("it ends");
        self.child.wait().expect("it ended");
    }
}
