//! A server's services on the embedded store, and nodes that ask it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bunraku_compile::targets::KnownTarget;
use bunraku_control::{Clock, keys};
use bunraku_model::{CatalogId, FactSet, NodeName, ServerId, default_environment};
use bunraku_server::backstage::{CompileQueue, RunningServices};
use bunraku_server::{ServiceOptions, WiringParts};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Range, SharedStore, Transaction};
use bunraku_wire::Authority;
use bunraku_wire::api::{CompileReason, DeployedCode};
use futures::StreamExt;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::code::{SiteCode, Version};

/// The number of nodes that submit at the same time.
const AT_ONCE: usize = 64;
/// A time limit that is long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(1_800);

pub(crate) fn name(number: u64) -> NodeName {
    NodeName::new(format!("node-{number}.bench")).expect("a name")
}

/// A few kilobytes, like a real machine's facts.
pub(crate) fn facts(number: u64) -> FactSet {
    let filler: Vec<Value> = (0..50)
        .map(|fact| json!({"name": format!("fact {fact}"), "value": fact * 7919}))
        .collect();
    let facts = json!({"number": number, "kernel": "Linux", "filler": filler});
    facts.try_into().expect("an object")
}

/// A node's memory of its last answer.
struct Remembered {
    tag: String,
    catalog: CatalogId,
}

pub(crate) struct Fleet {
    backstage: RunningServices,
    store: SharedStore,
    names: Vec<NodeName>,
    remembered: HashMap<NodeName, Remembered>,
    directory: tempfile::TempDir,
}

impl Fleet {
    /// Creates a fleet with known nodes, deployed code, and no facts yet.
    pub(crate) async fn start(nodes: u64, code: &SiteCode) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("store");
        let store = EmbeddedStore::open(&place, EmbeddedOptions::default()).await;
        let store: SharedStore = Arc::new(store.expect("the store opens"));
        let place = directory.path().join("blobs");
        let blobs =
            DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default()).await;
        let authority =
            Authority::load_or_create(&directory.path().join("ca"), Clock::system().now());
        let parts = WiringParts {
            store: store.clone(),
            blobs: Arc::new(blobs.expect("the blobs open")),
            clock: Clock::system(),
            signer: Arc::new(authority.expect("an authority")).into(),
            server: ServerId(Uuid::from_u128(1)),
            compiler: Some(Box::new(code.clone())),
        };
        let options = ServiceOptions::new(directory.path());
        let backstage = RunningServices::start(&options, parts).await;
        let backstage = backstage.expect("the services start");
        let fleet = Self {
            names: (0..nodes).map(name).collect(),
            backstage,
            store,
            remembered: HashMap::new(),
            directory,
        };
        let settings =
            json!({"url": "file:///nowhere", "policy": "auto", "created": "2026-01-01T00:00:00Z"});
        let key = keys::environment_settings(&default_environment());
        fleet.put(key, settings.to_string()).await;
        fleet.deploy(Version::Old, 1).await;
        let registering =
            futures::stream::iter(fleet.names.clone()).map(|name| register(&fleet.backstage, name));
        registering
            .buffer_unordered(AT_ONCE)
            .for_each(async |()| {})
            .await;
        fleet
    }

    async fn put(&self, key: String, value: String) {
        let transaction = Transaction::new().put(key, value);
        self.store.commit(transaction).await.expect("written");
    }

    /// Writes the code as a deploy does.
    async fn deploy(&self, version: Version, number: u64) {
        let deployed = DeployedCode {
            code_id: version.code_id(),
            number,
            at: Clock::system().now(),
            compiler: "states".to_owned(),
        };
        let text = serde_json::to_string(&deployed).expect("plain data");
        let key = keys::environment_deployed(&default_environment());
        self.put(key, text).await;
    }

    pub(crate) async fn submit_facts(&self) {
        let submissions = futures::stream::iter(self.names.clone().into_iter().zip(0..))
            .map(|(name, number)| submit(&self.backstage, name, number));
        submissions
            .buffer_unordered(AT_ONCE)
            .for_each(async |()| {})
            .await;
    }

    pub(crate) async fn push_new_code(&self) {
        self.deploy(Version::New, 2).await;
        let environment = default_environment();
        let nodes: Vec<_> = self
            .names
            .iter()
            .map(|name| (name.clone(), environment.clone()))
            .collect();
        let queue = CompileQueue::new(self.store.clone(), Clock::system());
        let asked = queue.request_all(&nodes, CompileReason::Code).await;
        asked.expect("asked for");
    }

    /// Waits until nothing is left to do, and exactly this many nodes have another
    /// catalog than they remember.
    pub(crate) async fn wait_for(&self, expected: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_busy().await || self.changed().await != expected {
            let changed = self.changed().await;
            assert!(
                Instant::now() < deadline,
                "{changed} have another catalog, not {expected}"
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // An unexpected release would come within this time.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(self.changed().await, expected, "with another catalog");
    }

    async fn is_busy(&self) -> bool {
        for prefix in [keys::FACT_QUEUE, keys::COMPILE_QUEUE] {
            let range = Range {
                limit: 1,
                keys_only: true,
                ..Range::prefix(prefix)
            };
            let page = self.store.range(range).await.expect("readable");
            if !page.items.is_empty() {
                return true;
            }
        }
        false
    }

    async fn target(&self, name: &NodeName) -> Option<Arc<KnownTarget>> {
        let board = &self.backstage.services().board;
        board.get(name).await.expect("readable")
    }

    async fn changed(&self) -> u64 {
        let mut changed = 0;
        for name in &self.names {
            let known = self.target(name).await;
            let catalog = known.map(|known| known.stored.target.catalog);
            let remembered = self.remembered.get(name).map(|it| it.catalog);
            changed += u64::from(catalog.is_some() && catalog != remembered);
        }
        changed
    }

    /// Every node asks for a newer target, and fetches it if there is one. Returns
    /// how many received one, and the bytes of all bodies.
    pub(crate) async fn ask(&mut self) -> (u64, u64) {
        let (mut replies, mut bytes) = (0, 0);
        for name in &self.names {
            let known = self.target(name).await;
            let known = known.expect("released before");
            let before = self.remembered.get(name);
            if before.is_some_and(|before| before.tag == known.entity_tag) {
                continue;
            }
            let target = &known.stored.target;
            replies += 1;
            bytes += serde_json::to_vec(target).expect("plain data").len() as u64;
            if before.is_none_or(|before| before.catalog != target.catalog) {
                bytes += self.fetch(target.catalog).await;
            }
            let remembered = Remembered {
                tag: known.entity_tag.clone(),
                catalog: target.catalog,
            };
            self.remembered.insert(name.clone(), remembered);
        }
        (replies, bytes)
    }

    async fn fetch(&self, catalog: CatalogId) -> u64 {
        let opened = self.backstage.services().catalogs.open(catalog).await;
        let (_, mut text) = opened.expect("what is released is kept");
        let mut bytes = 0;
        while let Some(piece) = text.next().await {
            bytes += piece.expect("readable").len() as u64;
        }
        bytes
    }

    /// Ends the services, so that they cost nothing from here on.
    pub(crate) async fn end(self) {
        drop(self.backstage);
        drop(self.store);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.directory.close().expect("removed");
    }
}

async fn register(backstage: &RunningServices, name: NodeName) {
    let registered = backstage.services().nodes.register(&name).await;
    registered.expect("registered");
}

async fn submit(backstage: &RunningServices, name: NodeName, number: u64) {
    let taken = backstage
        .services()
        .facts
        .submit(&name, &facts(number), None)
        .await;
    taken.expect("taken");
}
