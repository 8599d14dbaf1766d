//! Servers, agents, and what befalls them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_control::backstage::{Backstage, BackstageParts, CompileOptions, CompileQueue};
use bunraku_control::targets::KnownTarget;
use bunraku_control::{
    Clock, FactHooks, FactOptions, Facts, Nodes, ReleaseOptions, Releases, TargetBoard, keys,
};
use bunraku_model::{CodeId, NodeName, ServerId, default_environment};
use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use bunraku_store::testing::MemoryStore;
use bunraku_store::{Range, SharedStore, Transaction};
use bunraku_wire::api::{CompileReason, CreateRelease, Deployed, LastCompile, ReleaseTo, RunMode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::Agent;
use crate::compiler::version;
use crate::jitter_store::JitterStore;
use crate::{Chance, Checker, CountingCompiler};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub agents: usize,
    /// Submissions of each agent.
    pub rounds: usize,
    pub servers: usize,
    /// Servers are killed and messages lost and delayed.
    pub faults: bool,
    /// Catalogs are released by themselves, or by a person now and then.
    pub auto_release: bool,
}

/// A server, until it is killed.
struct SimServer {
    backstage: Backstage,
    /// Requests that it is answering.
    requests: JoinSet<()>,
}

/// What agents reach.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) chance: Chance,
    pub(crate) checker: Checker,
    servers: Arc<Mutex<Vec<Option<SimServer>>>>,
    faults: Arc<std::sync::atomic::AtomicBool>,
}

impl Shared {
    fn servers(&self) -> MutexGuard<'_, Vec<Option<SimServer>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> bool {
        self.faults.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Hands a request to a server that lives; to nobody if none does.
    pub(crate) fn deliver<W, R>(&self, work: W)
    where
        W: FnOnce(Facts) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let mut servers = self.servers();
        let mut alive: Vec<&mut SimServer> = servers.iter_mut().flatten().collect();
        if alive.is_empty() {
            return;
        }
        let chosen = self.chance.below(alive.len());
        let server = &mut alive[chosen];
        let facts = server.backstage.facts.clone();
        server.requests.spawn(work(facts));
    }

    /// What a server that lives tells of targets and releases.
    pub(crate) fn reader(&self) -> Option<(TargetBoard, Releases)> {
        let servers = self.servers();
        let alive: Vec<&SimServer> = servers.iter().flatten().collect();
        if alive.is_empty() {
            return None;
        }
        let server = alive[self.chance.below(alive.len())];
        Some((
            server.backstage.board.clone(),
            server.backstage.releases.clone(),
        ))
    }
}

/// A fleet on one store.
pub struct Fleet {
    plan: Plan,
    store: SharedStore,
    clock: Clock,
    names: Vec<NodeName>,
    shared: Shared,
    pub compiler: CountingCompiler,
    next_server: u128,
    code: u64,
}

impl Fleet {
    pub async fn start(plan: Plan) -> Self {
        let chance = Chance::new(plan.seed);
        let store: SharedStore = Arc::new(MemoryStore::new());
        let clock = virtual_clock();
        let nodes = Nodes::new(store.clone(), clock.clone());
        let mut names = Vec::new();
        for number in 0..plan.agents {
            let name = NodeName::new(format!("node-{number}")).expect("a name");
            nodes.register(&name).await.expect("registered");
            names.push(name);
        }
        let mut fleet = Self {
            compiler: CountingCompiler::new(chance.clone(), Duration::from_millis(500)),
            shared: Shared {
                chance,
                checker: Checker::default(),
                servers: Arc::default(),
                faults: Arc::new(plan.faults.into()),
            },
            plan,
            store,
            clock,
            names,
            next_server: 1,
            code: 0,
        };
        let policy = match fleet.plan.auto_release {
            true => "auto",
            false => "manual",
        };
        let key = keys::environment_settings(&default_environment());
        let settings = json!({"url": "file:///nowhere", "policy": policy});
        fleet.put(key, settings.to_string()).await;
        fleet.push_code().await;
        for _ in 0..fleet.plan.servers {
            let server = fleet.new_server();
            fleet.shared.servers().push(Some(server));
        }
        if fleet.plan.auto_release {
            fleet.shared.checker.may_have_a_target(fleet.names.clone());
        }
        fleet
    }

    async fn put(&self, key: String, value: String) {
        let transaction = Transaction::new().put(key, value);
        self.store
            .commit(transaction)
            .await
            .expect("memory takes it");
    }

    fn new_server(&mut self) -> SimServer {
        self.next_server += 1;
        let store: SharedStore = Arc::new(JitterStore {
            inner: self.store.clone(),
            chance: self.shared.chance.clone(),
        });
        let parts = BackstageParts {
            blobs: Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default())),
            store,
            clock: self.clock.clone(),
            server: ServerId(Uuid::from_u128(self.next_server)),
            directory: PathBuf::from("/nonexistent"),
            compiler: Box::new(self.compiler.clone()),
            facts: FactOptions {
                adopt_after: Duration::from_secs(2),
                ..FactOptions::default()
            },
            compiles: CompileOptions {
                concurrency: 2,
                lease: Duration::from_secs(3),
                ..CompileOptions::default()
            },
            releases: ReleaseOptions {
                leader_ttl: Duration::from_secs(3),
                keep: 10_000,
                ..ReleaseOptions::default()
            },
        };
        SimServer {
            backstage: Backstage::start(parts),
            requests: JoinSet::new(),
        }
    }

    /// New code for everybody, as a deploy leaves it.
    async fn push_code(&mut self) {
        self.code += 1;
        let environment = default_environment();
        let deployed = Deployed {
            code_id: self.code_id(),
            number: self.code,
            at: self.clock.now(),
            compiler: "simulated".to_owned(),
        };
        let text = serde_json::to_string(&deployed).expect("plain data");
        self.put(keys::environment_deployed(&environment), text)
            .await;
        let queue = CompileQueue::new(self.store.clone(), self.clock.clone());
        for name in &self.names {
            let asked = queue.request(name, CompileReason::Code).await;
            asked.expect("asked for");
        }
    }

    fn code_id(&self) -> CodeId {
        CodeId(format!("{:040x}", self.code))
    }

    /// Lets the agents do their rounds while things happen to the servers.
    pub async fn run(&mut self) {
        let mut agents = JoinSet::new();
        for (number, node) in self.names.iter().enumerate() {
            let agent = Agent {
                node: node.clone(),
                session: Uuid::from_u128(number as u128),
                shared: self.shared.clone(),
            };
            agents.spawn(agent.run(self.plan.rounds));
        }
        loop {
            let pause = self.shared.chance.up_to(Duration::from_secs(3));
            tokio::select! {
                ended = agents.join_next() => match ended {
                    None => return,
                    Some(Ok(())) => {}
                    Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                },
                () = tokio::time::sleep(pause) => self.something_happens().await,
            }
        }
    }

    async fn something_happens(&mut self) {
        let chance = self.shared.chance.clone();
        let number = chance.below(self.plan.servers);
        let alive = self.shared.servers()[number].is_some();
        match (self.plan.faults, alive) {
            // Wherever it is in its work.
            (true, true) if chance.happens(50) => drop(self.shared.servers()[number].take()),
            (_, false) => {
                let server = self.new_server();
                self.shared.servers()[number] = Some(server);
            }
            _ if chance.happens(20) => self.push_code().await,
            _ if !self.plan.auto_release => self.release_some().await,
            _ => {}
        }
    }

    /// A person releases what is compiled for one node.
    async fn release_some(&self) {
        let node = self.names[self.shared.chance.below(self.names.len())].clone();
        let Some((_, releases)) = self.shared.reader() else {
            return;
        };
        self.shared.checker.may_have_a_target([node.clone()]);
        let request = CreateRelease {
            parent: None,
            to: ReleaseTo::Nodes { nodes: vec![node] },
            mode: RunMode::Enforce,
            reason: None,
        };
        // Refused as long as nothing is compiled for it.
        let _ = releases
            .create(&default_environment(), &request, "sim")
            .await;
    }

    /// A person releases all that is compiled, and waits until nodes are told.
    async fn release_everything(&self) {
        let (_, releases) = self.shared.reader().expect("all servers live");
        self.shared.checker.may_have_a_target(self.names.clone());
        let request = CreateRelease {
            parent: None,
            to: ReleaseTo::Everything,
            mode: RunMode::Enforce,
            reason: None,
        };
        let environment = default_environment();
        let released = releases.create(&environment, &request, "sim").await;
        released.expect("what is compiled can be released");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    /// Ends the faults, waits until nothing is left to do, and looks.
    pub async fn settle_and_check(&mut self) {
        self.shared
            .faults
            .store(false, std::sync::atomic::Ordering::Relaxed);
        for number in 0..self.plan.servers {
            if self.shared.servers()[number].is_none() {
                let server = self.new_server();
                self.shared.servers()[number] = Some(server);
            }
        }
        self.settle().await;
        if !self.plan.auto_release {
            self.release_everything().await;
        }
        assert_eq!(
            self.compiler.twice_at_once(),
            Vec::<NodeName>::new(),
            "compiled twice at once"
        );
        for name in self.names.clone() {
            self.check_node(&name).await;
        }
    }

    async fn settle(&self) {
        // What is on its way arrives first.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let deadline = Instant::now() + Duration::from_secs(3_600);
        loop {
            let facts = self.count(keys::FACT_QUEUE).await;
            let compiles = self.count(keys::COMPILE_QUEUE).await;
            if facts + compiles == 0 {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{facts} submissions and {compiles} compiles are never done"
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // Releases make themselves some seconds after the last compile.
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    async fn count(&self, prefix: &str) -> usize {
        let page = self.store.range(Range::prefix(prefix)).await;
        page.expect("memory answers").items.len()
    }

    async fn check_node(&self, node: &NodeName) {
        let blobs = StoreBlobs::in_store(self.store.clone(), BlobOptions::default());
        let facts = Facts::new(
            self.store.clone(),
            Arc::new(blobs),
            self.clock.clone(),
            FactOptions::default(),
            FactHooks::default(),
        );
        let shown = facts.show(node).await.ok();
        let found = shown.as_ref().map(|shown| version(&shown.facts));
        self.shared.checker.in_the_end(node, found);
        let Some(shown) = shown else {
            return;
        };
        let status = self.store.get(&keys::compile_status(node)).await;
        let status = status.expect("memory answers").expect("it was compiled");
        let last: LastCompile = serde_json::from_slice(&status.value).expect("a status");
        assert_eq!(last.fact_set, Some(shown.fact_set), "`{node}`: its facts");
        assert_eq!(last.code_id, Some(self.code_id()), "`{node}`: its code");
        let (board, releases) = self.shared.reader().expect("all servers live");
        let target = board.get(node).await.expect("memory answers");
        if let Some(known) = &target {
            see_target(&self.shared.checker, &releases, node, known).await;
        }
        let compiled = self.store.get(&keys::compiled(node)).await;
        let compiled = compiled.expect("memory answers").expect("it was compiled");
        let compiled: serde_json::Value = serde_json::from_slice(&compiled.value).expect("JSON");
        let given = target.map(|known| known.stored.target.catalog.to_string());
        assert_eq!(
            given.as_deref(),
            compiled["catalog"].as_str(),
            "`{node}`: what was compiled last is what it is given"
        );
    }

    pub fn checker(&self) -> &Checker {
        &self.shared.checker
    }
}

/// The wall clock of the simulation: it goes with the runtime's.
fn virtual_clock() -> Clock {
    let start = Instant::now();
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Clock::new(move || {
        let passed = SignedDuration::try_from(start.elapsed()).expect("not for ages");
        first.checked_add(passed).expect("not for ages")
    })
}

/// Tells which seed it was when something does not hold.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// Runs a fleet from its first message to the last check; panics when
/// something does not hold. Gives back what was seen.
pub fn simulate(plan: Plan) -> (Checker, usize) {
    let _seed = TellSeed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let mut fleet = Fleet::start(plan).await;
        fleet.run().await;
        fleet.settle_and_check().await;
        (fleet.checker().clone(), fleet.compiler.compiles())
    })
}

/// Tells the checker of a target that a node was given.
pub(crate) async fn see_target(
    checker: &Checker,
    releases: &Releases,
    node: &NodeName,
    known: &KnownTarget,
) {
    let target = &known.stored.target;
    let number = Some(target.release);
    let release = releases.show(&target.environment, number).await;
    let release = release.expect("the release of a target is there");
    let named = release
        .map
        .iter()
        .any(|entry| entry.node == *node && entry.catalog == target.catalog);
    checker.target(node, named);
}
