//! A fleet: the events of its life, and the final check.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bunraku_control::{Clock, FactHooks, FactOptions, Facts, Nodes, ReportFilter, keys};
use bunraku_model::{CodeId, NodeName, default_environment};
use bunraku_server::Services;
use bunraku_server::backstage::CompileQueue;
use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use bunraku_store::history::SharedHistory;
use bunraku_store::testing::{MemoryHistory, MemoryStore};
use bunraku_store::{Range, SharedStore, Transaction};
use bunraku_wire::api::{
    CompileReason, CreateRelease, DeployedCode, EventStatus, LastCompile, ReleaseTo, ReportEvent,
    ReportState, RunMode,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::{Agent, record_target};
use crate::audit_checker::{AuditChecker, intended_change, recorded_change};
use crate::bug::Bug;
use crate::compiler::version;
use crate::servers::Servers;
use crate::strike::KillSwitch;
use crate::{Chance, Checker, CountingCompiler, CueChecker, Moment};

/// The time within which a call to the store that counted as the chosen one kills its server.
const LATEST_DEATH: Duration = Duration::from_secs(1);
/// The limit of a whole life, in virtual time. The longest waits of one part are an hour.
const LONGEST_LIFE: Duration = Duration::from_secs(4 * 3_600);

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    pub seed: u64,
    pub agents: usize,
    /// The number of submissions of each agent.
    pub rounds: usize,
    pub servers: usize,
    /// Servers and agents are killed, and messages are lost, duplicated and delayed.
    pub faults: bool,
    /// Catalogs are released automatically; otherwise a person releases them now and then.
    pub auto_release: bool,
    /// The only server is killed at this call to its store.
    pub kill_server: Option<Moment>,
    /// The first agent is killed at this step.
    pub kill_agent: Option<Moment>,
    /// Agents fire triggers, and some of their resources fail, to which a reactor reacts.
    pub cues: bool,
    /// The number of ordered runs over the first nodes.
    pub ordered_runs: usize,
    pub bug: Option<Bug>,
}

/// Counts from the life of a fleet.
#[derive(Clone, Debug)]
pub struct FleetCounts {
    pub checker: Checker,
    pub cues: CueChecker,
    pub audit: AuditChecker,
    pub compiles: usize,
    /// The number of calls from the servers to their store.
    pub store_calls: u64,
    /// The number of steps of the first agent.
    pub agent_steps: u64,
}

/// A fleet on one store.
pub struct Fleet {
    pub(crate) plan: SimulationOptions,
    pub(crate) store: SharedStore,
    clock: Clock,
    pub(crate) names: Vec<NodeName>,
    pub(crate) servers: Servers,
    pub(crate) checker: Checker,
    pub(crate) cues: CueChecker,
    audit: AuditChecker,
    /// Of its own, so that changes for the audit log do not change what else happens.
    audit_chance: Chance,
    pub(crate) ordered_runs_left: usize,
    agents: Vec<Agent>,
    /// The agents' disks.
    disks: TempDir,
    code: u64,
    /// Background tasks, which end with the fleet.
    tasks: JoinSet<()>,
}

impl Fleet {
    pub async fn start(plan: SimulationOptions) -> Self {
        let chance = Chance::new(plan.seed);
        let audit_chance = Chance::new(plan.seed.wrapping_add(1 << 40));
        let store: SharedStore = Arc::new(MemoryStore::new());
        let clock = virtual_clock();
        let nodes = Nodes::new(store.clone(), clock.clone());
        let mut names = Vec::new();
        for number in 0..plan.agents {
            let name = NodeName::new(format!("node-{number}")).expect("a name");
            nodes.register(&name).await.expect("registered");
            names.push(name);
        }
        let compiler = CountingCompiler::new(chance.clone(), Duration::from_millis(500));
        let strike = KillSwitch::new(plan.kill_server);
        let disks = disks();
        let directory = disks.path().join("servers");
        let (known, time) = (store.clone(), clock.clone());
        // Every other fleet has a history of its own, as with PostgreSQL.
        let history: Option<SharedHistory> = match plan.seed % 2 {
            0 => None,
            _ => Some(Arc::new(MemoryHistory::new())),
        };
        let servers = Servers::new((known, history), time, compiler, chance, strike, directory);
        let mut fleet = Self {
            ordered_runs_left: plan.ordered_runs,
            plan,
            store,
            clock,
            names,
            servers,
            checker: Checker::default(),
            cues: CueChecker::default(),
            audit: AuditChecker::default(),
            audit_chance,
            agents: Vec::new(),
            disks,
            code: 0,
            tasks: JoinSet::new(),
        };
        fleet.settle_in().await;
        fleet
    }

    async fn settle_in(&mut self) {
        let policy = if self.plan.auto_release {
            "auto"
        } else {
            "manual"
        };
        let key = keys::environment_settings(&default_environment());
        let settings =
            json!({"url": "file:///nowhere", "policy": policy, "created": "2026-01-01T00:00:00Z"});
        self.put(key, settings.to_string()).await;
        self.deploy_reactor().await;
        self.push_code().await;
        self.servers.start(self.plan.servers, self.plan.faults);
        self.tasks
            .spawn(self.servers.clone().watch_over_the_first());
        self.until("a server lives", async |fleet| {
            fleet.servers.any().is_some()
        })
        .await;
        if self.plan.auto_release {
            self.checker.may_have_a_target(self.names.clone());
        }
        self.agents = (self.names.iter().enumerate())
            .map(|(number, node)| self.agent(number, node))
            .collect();
    }

    fn agent(&self, number: usize, node: &NodeName) -> Agent {
        let moment = self.plan.kill_agent.filter(|_| number == 0);
        Agent {
            node: node.clone(),
            session: Uuid::from_u128(number as u128),
            directory: self.disks.path().join(node.as_str()),
            servers: self.servers.clone(),
            checker: self.checker.clone(),
            cues: self.cues.clone(),
            has_cues: self.plan.cues,
            peers: self.names.clone().into(),
            // With many agents, polling is most of the work.
            pace: Duration::from_secs(2 + self.names.len() as u64 / 50),
            strike: Arc::new(KillSwitch::new(moment)),
            bug: self.plan.bug,
            life: Arc::new(Mutex::new(None)),
        }
    }

    pub(crate) async fn put(&self, key: String, value: String) {
        let transaction = Transaction::new().put(key, value);
        self.store
            .commit(transaction)
            .await
            .expect("memory takes it");
    }

    /// Pushes new code for all nodes, as a deploy does.
    async fn push_code(&mut self) {
        self.code += 1;
        let environment = default_environment();
        let deployed = DeployedCode {
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

    /// Lets the agents do their rounds while faults happen to the servers.
    pub async fn run(&mut self) {
        let (over, mut ended) = mpsc::unbounded_channel();
        for agent in &self.agents {
            let agent = agent.clone();
            let life = agent.live(self.plan.rounds, over.clone());
            self.tasks.spawn(life);
        }
        self.change_something();
        let mut left = self.agents.len();
        let deadline = Instant::now() + Duration::from_secs(600);
        while left > 0 {
            if Instant::now() >= deadline {
                panic!(
                    "never: the rounds are over: {}",
                    self.describe_nodes().await
                );
            }
            let pause = self.servers.chance.up_to(Duration::from_secs(3));
            tokio::select! {
                biased;
                _ = ended.recv() => left -= 1,
                () = tokio::time::sleep(pause) => self.something_happens().await,
                Some(ended) = self.tasks.join_next() => pass_on(ended),
            }
        }
    }

    async fn something_happens(&mut self) {
        if self.audit_chance.happens(30) {
            self.change_something();
        }
        let chance = self.servers.chance.clone();
        let number = chance.below(self.plan.servers);
        match (self.plan.faults, self.servers.is_alive(number)) {
            (true, true) if chance.happens(50) => self.servers.kill(number),
            // A server that was struck comes back automatically.
            (true, false) => self.servers.restart(number),
            (_, true) if self.ordered_runs_left > 0 && chance.happens(40) => {
                self.start_ordered_run_if_possible().await;
            }
            (_, true) if chance.happens(20) => self.push_code().await,
            (_, true) if !self.plan.auto_release => self.release_some().await,
            (true, true) if chance.happens(20) => self.upkeep().await,
            _ => {}
        }
    }

    /// A server cleans up old reports.
    async fn upkeep(&self) {
        let asked = self.servers.ask(|services, answer| async move {
            let _ = services.reports.upkeep().await;
            answer.give(());
        });
        asked.await;
    }

    /// A person makes changes that the audit log has to contain.
    fn change_something(&mut self) {
        let (audit, servers) = (self.audit.clone(), self.servers.clone());
        let (number, bug) = (audit.next(), self.plan.bug);
        self.tasks.spawn(async move {
            let asked = servers.ask(move |services, answer| async move {
                let made = intended_change(&services).await;
                let _ = recorded_change(&services, number, bug).await;
                answer.give(made);
            });
            if let Some(Some(change)) = asked.await {
                audit.acknowledge(change);
            }
        });
    }

    /// A person releases the compiled catalog of one node.
    async fn release_some(&self) {
        let node = self.names[self.servers.chance.below(self.names.len())].clone();
        self.checker.may_have_a_target([node.clone()]);
        let request = CreateRelease {
            parent: None,
            to: ReleaseTo::Nodes { nodes: vec![node] },
            mode: RunMode::Enforce,
            reason: None,
        };
        let asked = self.servers.ask(move |services, answer| {
            let request = request.clone();
            async move {
                // Refused as long as nothing is compiled for it.
                let _ = services
                    .releases
                    .create(&default_environment(), &request, "sim")
                    .await;
                answer.give(());
            }
        });
        asked.await;
    }

    /// A person releases all compiled catalogs, if there are any: every node of a small fleet may
    /// have been lost before its first facts arrived.
    async fn release_everything(&self) {
        if self.count(keys::COMPILED).await == 0 {
            return;
        }
        self.checker.may_have_a_target(self.names.clone());
        let request = CreateRelease {
            parent: None,
            to: ReleaseTo::Everything,
            mode: RunMode::Enforce,
            reason: None,
        };
        let environment = default_environment();
        let releases = self.services().releases.clone();
        let released = releases.create(&environment, &request, "sim").await;
        released.expect("what is compiled can be released");
    }

    pub(crate) fn services(&self) -> Services {
        self.servers.any().expect("all servers live")
    }

    /// Ends the faults, waits until nothing is left to do, and checks the result.
    pub async fn settle_and_check(&mut self) {
        self.servers.end_faults();
        if self.ordered_runs_left > 0 {
            self.until("ordered runs may start", Self::may_start_ordered_run)
                .await;
        }
        while self.ordered_runs_left > 0 {
            self.start_ordered_run().await;
        }
        // Messages in transit arrive first.
        tokio::time::sleep(Duration::from_secs(5)).await;
        self.until("submissions and compiles are done", async |fleet| {
            fleet.nothing_queued().await && fleet.all_compiled().await
        })
        .await;
        if !self.plan.auto_release {
            self.servers.strike.disarm();
            self.release_everything().await;
        }
        self.until("every node applied its newest catalog", Self::all_done)
            .await;
        self.until(
            "nothing runs or waits, and connections are true",
            Self::is_quiet,
        )
        .await;
        self.servers.strike.disarm();
        // A call that counted as the chosen one before that still kills its server, a moment
        // later. That server comes back.
        tokio::time::sleep(LATEST_DEATH).await;
        self.until("a server lives", async |fleet| {
            fleet.servers.any().is_some()
        })
        .await;
        assert_eq!(
            self.servers.compiler.twice_at_once(),
            Vec::<NodeName>::new(),
            "compiled twice at once"
        );
        for name in self.names.clone() {
            self.check_node(&name).await;
        }
        let upkeep = self.services().reports.upkeep().await;
        upkeep.expect("memory answers");
        let failed_runs = self.check_reports().await;
        self.check_cues(failed_runs).await;
        self.until("audit records are linked", async |fleet| {
            fleet.count(keys::AUDIT_INBOX).await + fleet.count(keys::AUDIT_PENDING).await == 0
        })
        .await;
        let services = self.services();
        let environment = default_environment();
        let check = self.audit.check(&*self.store, &services, &environment);
        check.await;
    }

    /// Returns true if nothing is left to do. What one part waits for may start work of
    /// another part, so all of it must hold at once.
    async fn is_quiet(&self) -> bool {
        self.nothing_queued().await
            && self.cues_are_done().await
            && self.ordered_runs_are_over().await
            && self.connections_are_true().await
            && self.all_done().await
    }

    /// Waits as long as needed in virtual time. One hour counts as never.
    async fn until(&mut self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(3_600);
        while !holds(self).await {
            if Instant::now() >= deadline {
                panic!("never: {what}: {}", self.describe_nodes().await);
            }
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next() => pass_on(ended),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn nothing_queued(&self) -> bool {
        self.count(keys::FACT_QUEUE).await + self.count(keys::COMPILE_QUEUE).await == 0
    }

    async fn all_compiled(&self) -> bool {
        for agent in &self.agents {
            let compiled = self.field(keys::compiled(&agent.node)).await;
            if compiled.is_none() && !self.checker.is_lost(&agent.node) {
                return false;
            }
        }
        true
    }

    pub(crate) async fn count(&self, prefix: &str) -> usize {
        let page = self.store.range(Range::prefix(prefix)).await;
        page.expect("memory answers").items.len()
    }

    async fn all_done(&self) -> bool {
        for agent in &self.agents {
            let compiled = self.field(keys::compiled(&agent.node)).await;
            if self.checker.is_lost(&agent.node) && compiled.is_none() {
                continue;
            }
            if compiled.is_none() || compiled != self.field(keys::target(&agent.node)).await {
                return false;
            }
            let done = self.checker.applied_catalog(&agent.node);
            let done = done.map(|catalog| catalog.to_string());
            let at_rest = done == compiled && agent.is_at_rest();
            if !at_rest && !self.checker.is_lost(&agent.node) {
                return false;
            }
        }
        true
    }

    /// Describes the state of each node, for the analysis of a failed seed.
    async fn describe_nodes(&self) -> String {
        let mut text = String::new();
        for agent in &self.agents {
            let compiled = self.field(keys::compiled(&agent.node)).await;
            let target = self.field(keys::target(&agent.node)).await;
            let done = self.checker.applied_catalog(&agent.node);
            let at_rest = agent.is_at_rest();
            text.push_str(&format!(
                "\n{}: compiled {compiled:?}, given {target:?}, did {done:?}, at rest: {at_rest}, lost: {}",
                agent.node,
                self.checker.is_lost(&agent.node),
            ));
        }
        text
    }

    /// Returns the catalog that a document names.
    pub(crate) async fn field(&self, key: String) -> Option<String> {
        let found = self.store.get(&key).await.expect("memory answers")?;
        let found: serde_json::Value = serde_json::from_slice(&found.value).expect("JSON");
        Some(found["catalog"].as_str()?.to_owned())
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
        self.checker.in_the_end(node, found);
        if shown.is_none() {
            assert!(self.checker.is_lost(node), "`{node}` has no facts");
            return;
        }
        let status = self.store.get(&keys::compile_status(node)).await;
        let status = status.expect("memory answers").expect("it was compiled");
        let last: LastCompile = serde_json::from_slice(&status.value).expect("a status");
        if let Some(shown) = shown {
            assert_eq!(last.fact_set, Some(shown.fact_set), "`{node}`: its facts");
        }
        assert_eq!(last.code_id, Some(self.code_id()), "`{node}`: its code");
        let services = self.services();
        let target = services.board.get(node).await.expect("memory answers");
        let target = target.expect("it was released");
        record_target(&self.checker, &services.releases, node, &target).await;
        assert_eq!(
            Some(target.stored.target.catalog.to_string()),
            self.field(keys::compiled(node)).await,
            "`{node}`: what was compiled last is what it is given"
        );
    }

    /// Checks all reports. Returns the number of runs with a failed resource.
    async fn check_reports(&self) -> usize {
        let mut failed_runs = 0;
        let reports = self.services().reports.clone();
        for (node, run) in self.checker.runs_asked_for() {
            let found = reports.find(&run.to_string()).await;
            if self.checker.is_lost(&node) {
                continue;
            }
            let found = found.unwrap_or_else(|error| panic!("run {run} of `{node}`: {error}"));
            assert_eq!(found.state, ReportState::Finished, "run {run} of `{node}`");
        }
        let filter = ReportFilter {
            within: None,
            node: None,
            failed: false,
            unfinished: true,
            limit: 10_000,
            after: None,
        };
        let unfinished = reports.list(&filter).await.expect("memory answers").reports;
        for (run, done) in self.checker.runs_begun() {
            match reports.events(&done.node, run, 0).await {
                Ok(events) => {
                    self.checker.report(run, &done, &events);
                    failed_runs += usize::from(events.iter().any(|event| is_failure(&event.event)));
                }
                Err(error) => assert!(
                    self.checker.is_lost(&done.node),
                    "run {run} of `{}`: {error}",
                    done.node
                ),
            }
            let Ok(shown) = reports.show(&done.node, run).await else {
                continue;
            };
            let is_told = unfinished.iter().any(|report| report.run == run);
            assert_eq!(
                is_told,
                shown.finished.is_none(),
                "run {run} is listed as it is"
            );
        }
        let lost = |node: &NodeName| self.checker.is_lost(node);
        let stray = unfinished.iter().find(|report| !lost(&report.node));
        assert!(stray.is_none(), "never ends: {stray:?}");
        failed_runs
    }

    fn counts(&self) -> FleetCounts {
        FleetCounts {
            checker: self.checker.clone(),
            cues: self.cues.clone(),
            audit: self.audit.clone(),
            compiles: self.servers.compiler.compiles(),
            store_calls: self.servers.strike.steps(),
            agent_steps: self.agents.first().map_or(0, |agent| agent.strike.steps()),
        }
    }
}

fn is_failure(event: &ReportEvent) -> bool {
    matches!(event, ReportEvent::Resource(resource) if resource.status == EventStatus::Failed)
}

fn pass_on(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Creates the disks in memory if possible: syncs cost nothing there.
fn disks() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a directory for the disks of agents")
}

/// The wall clock of the simulation: it follows the runtime's clock.
fn virtual_clock() -> Clock {
    let start = Instant::now();
    let first: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Clock::new(move || {
        let passed = SignedDuration::try_from(start.elapsed()).expect("not for ages");
        first.checked_add(passed).expect("not for ages")
    })
}

/// Prints the seed when a check fails.
struct SeedPrinter(u64);

impl Drop for SeedPrinter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// Runs a fleet from its first message to the last check, and returns its counts.
/// Panics when an invariant does not hold.
pub fn simulate(plan: SimulationOptions) -> FleetCounts {
    let _seed = SeedPrinter(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let mut fleet = Fleet::start(plan).await;
        let life = async {
            fleet.run().await;
            fleet.settle_and_check().await;
        };
        let lived = tokio::time::timeout(LONGEST_LIFE, life).await;
        lived.expect("it ends: a check waits for a server that is dead");
        fleet.counts()
    })
}
