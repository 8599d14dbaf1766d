//! A real agent applies what a real server released, and reports it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bunraku_agent::{
    AgentOptions, CatalogOptions, ConfiguredMethod, EngineOptions, PluginOptions, RunOptions,
    RunSettings, SpoolOptions, Windows,
};
use bunraku_model::{FactSet, NodeRunId};
use bunraku_wire::ServerAddress;
use bunraku_wire::api::locks::LockStatus;
use bunraku_wire::api::triggers::{StopReason, TriggerEvent, TriggerLimits, TriggerNews};
use bunraku_wire::api::{
    Cause, Command, EventStatus, NumberedEvent, ReleaseTo, ReportEvent, ReportPage, ReportSummary,
    ResourceEvent, RunEnding, RunFinished, RunMode, RunRequest, RunStarted, SendCommand,
    SentCommand,
};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{BindPlan, CreateRun, Endpoint, ListNodes, ShowRun};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::fleet::{compile_resources, release};
use crate::support::{TestServer, eventually, name, soon};

/// An agent in this process. Dropping it has the effect of `kill -9`.
struct Agent {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The state that outlives an agent.
struct Machine {
    directory: TempDir,
}

impl Machine {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        std::fs::create_dir(directory.path().join("root")).expect("a root");
        Self { directory }
    }

    fn root(&self, path: &str) -> std::path::PathBuf {
        self.directory.path().join("root").join(path)
    }

    fn options(&self, server: &TestServer, token: Option<String>) -> AgentOptions {
        let at = server.address();
        let address = ServerAddress::new(&at.ip().to_string(), at.port()).expect("an address");
        AgentOptions {
            name: name("web-1"),
            servers: vec![address],
            data_dir: self.directory.path().join("agent"),
            ca_fingerprint: Some(server.running().ca_fingerprint().parse().expect("own text")),
            token,
            facts_interval: Duration::from_secs(3_600),
            collect_facts: Arc::new(|_| FactSet::new(serde_json::Map::new())),
            plugins: PluginOptions::default(),
            runs: RunOptions {
                method: ConfiguredMethod::Engine,
                settings: RunSettings {
                    noop: false,
                    windows: Windows::default(),
                    timeout: None,
                },
                interval: None,
                splay: Duration::ZERO,
                release_splay: Duration::ZERO,
                on_release: false,
                engine: EngineOptions {
                    module_keys: "/nonexistent".into(),
                    state_directory: self.directory.path().join("engine"),
                    root: Some(self.directory.path().join("root")),
                    lock_wait: Duration::from_secs(60),
                    catalogs: CatalogOptions::default(),
                    transport: None,
                    order: None,
                },
                spool: SpoolOptions::default(),
            },
        }
    }

    async fn joined(&self, server: &TestServer) -> AgentOptions {
        let token = server.token(Some("web-1")).await;
        self.options(server, Some(token))
    }
}

fn start(options: AgentOptions) -> Agent {
    let task = tokio::spawn(async move {
        let ended = bunraku_agent::run(options, CancellationToken::new()).await;
        ended.expect("the agent runs");
    });
    Agent { task }
}

/// Starts an agent, and waits until the server knows its node.
async fn start_joined(machine: &Machine, server: &TestServer) -> Agent {
    let agent = start(machine.joined(server).await);
    eventually(async || {
        let node = server.operator.get::<serde_json::Value>("/v1/nodes/web-1");
        node.await.is_ok()
    })
    .await;
    agent
}

fn motd() -> serde_json::Value {
    json!({"type": "File", "title": "/motd", "parameters": {"ensure": "file", "source": "salt://x", "mode": "0640"}})
}

async fn compile(server: &TestServer, code: &str, content: &str) {
    let resources = vec![motd()];
    compile_resources(
        server,
        "web-1",
        "production",
        code,
        content.as_bytes(),
        resources,
    )
    .await;
}

/// Waits until the agent has joined.
async fn is_known(server: &TestServer) {
    let node = async || {
        server
            .operator
            .get::<serde_json::Value>("/v1/nodes/web-1")
            .await
    };
    eventually(async || node().await.is_ok()).await;
}

/// Requests a run and follows it to its end.
async fn run(server: &TestServer, mode: Option<RunMode>) -> Followed {
    let id = NodeRunId(Uuid::now_v7());
    let somebody = Cause::Operator {
        name: "somebody".to_owned(),
        reason: None,
    };
    let request = RunRequest {
        mode,
        coalesce: false,
        ..RunRequest::new(id, vec![somebody])
    };
    let send = SendCommand {
        nodes: vec![name("web-1")],
        command: Command::Run(Box::new(request)),
        ttl_seconds: 600,
    };
    let _sent: Vec<SentCommand> =
        (server.operator.post("/v1/commands", &send).await).expect("sent");
    let path = format!("/v1/nodes/web-1/reports/{id}/stream");
    let mut lines: Lines<NumberedEvent> = server.operator.stream(&path).await.expect("a stream");
    let mut followed = Followed::default();
    while let Some(event) = soon(lines.next()).await {
        match event.expect("an event").event {
            ReportEvent::Started(started) => followed.started = Some(started),
            ReportEvent::Resource(resource) => followed.resources.push(*resource),
            ReportEvent::Finished(finished) => followed.finished = Some(finished),
            ReportEvent::Log(_) | ReportEvent::Omitted(_) => {}
        }
    }
    followed
}

#[derive(Default, Debug)]
struct Followed {
    started: Option<RunStarted>,
    resources: Vec<ResourceEvent>,
    finished: Option<RunFinished>,
}

impl Followed {
    fn started(&self) -> &RunStarted {
        self.started.as_ref().expect("it started")
    }

    fn finished(&self) -> &RunFinished {
        self.finished.as_ref().expect("it finished")
    }
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[tokio::test]
async fn a_released_catalog_is_applied_and_drift_is_distinguished_from_intended_changes() {
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let options = machine.joined(&server).await;
    let _agent = start(options);
    is_known(&server).await;
    let nothing = run(&server, None).await;
    assert_eq!(nothing.finished().ending, RunEnding::NotStarted);
    let why = nothing.finished().message.clone().expect("why");
    assert!(why.contains("no released catalog"), "{why}");
    compile(&server, "c1", "hello\n").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let noop = run(&server, Some(RunMode::Noop)).await;
    assert_eq!(noop.resources[0].status, EventStatus::Pending);
    assert_eq!(text(&machine.root("motd")), None, "noop changes nothing");
    let first = run(&server, None).await;
    assert_eq!(first.finished().ending, RunEnding::Succeeded);
    assert_eq!(first.started().release.expect("a release").0, 1);
    let started = first.started().clone();
    assert!(!started.from_cache && started.mode == RunMode::Enforce);
    assert_eq!(
        started.causes,
        [Cause::Operator {
            name: "operator.server.test".to_owned(),
            reason: None
        }]
    );
    assert_eq!(first.resources[0].status, EventStatus::Changed);
    assert!(
        !first.resources[0].corrective,
        "nobody had wished for it before"
    );
    assert_eq!(text(&machine.root("motd")).as_deref(), Some("hello\n"));
    std::fs::write(machine.root("motd"), "drifted\n").expect("written");
    let second = run(&server, None).await;
    assert!(second.resources[0].corrective, "{:?}", second.resources);
    assert_eq!(
        (second.finished().changed, second.finished().corrective),
        (1, 1)
    );
    assert_eq!(run(&server, None).await.finished().unchanged, 1);
    server.shutdown().await;
}

fn cue() -> Vec<serde_json::Value> {
    vec![
        json!({"type": "Lock", "title": "db-master", "parameters": {"lease": "1h", "reason": "master"}}),
        json!({"type": "Exec", "title": "work", "parameters": {"command": "/bin/true", "notify": "Trigger[go]"}}),
        json!({"type": "Trigger", "title": "go", "parameters": {"hosts": ["web-1"], "ttl": 1}}),
    ]
}

async fn lock_status(server: &TestServer) -> LockStatus {
    let status = server.operator.get("/v1/locks/db-master").await;
    status.expect("a lock")
}

#[tokio::test]
async fn triggers_and_locks_of_a_run_use_the_agents_connection_with_causes_and_tokens() {
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let _agent = start_joined(&machine, &server).await;
    compile_resources(&server, "web-1", "production", "c1", b"x", cue()).await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let noop = run(&server, Some(RunMode::Noop)).await;
    assert_eq!(noop.finished().ending, RunEnding::Succeeded);
    let unused = server.operator.get::<LockStatus>("/v1/locks/db-master");
    assert_eq!(
        unused.await.err().and_then(|error| error.status()),
        Some(404)
    );
    for thing in ["triggers/go", "locks/db-master"] {
        server.permit(thing).await;
    }
    let first = run(&server, None).await;
    assert_eq!(first.finished().ending, RunEnding::Succeeded, "{first:?}");
    let trigger = |followed: &Followed| {
        let mut resources = followed.resources.iter();
        let found = resources.find(|resource| resource.type_name == "Trigger");
        found.and_then(|resource| resource.message.clone())
    };
    assert_eq!(trigger(&first).as_deref(), Some("go was fired for 1 host"));
    // The cue comes back to this node: its run continues the chain, and ends it.
    eventually(async || {
        let all = reports(&server).await;
        let cued =
            |report: &&ReportSummary| matches!(&report.started.causes[..], [Cause::Trigger(_)]);
        all.iter()
            .filter(cued)
            .any(|report| report.finished.is_some())
    })
    .await;
    let events: Vec<TriggerEvent> =
        (server.operator.get("/v1/trigger-events?most=10").await).expect("a history");
    let stopped = |event: &TriggerEvent| match &event.what {
        TriggerNews::Stopped { why, chain, .. } => Some((*why, chain.len())),
        _ => None,
    };
    let stopped: Vec<_> = events.iter().filter_map(stopped).collect();
    assert_eq!(stopped, [(StopReason::HopLimit, 2)], "{events:?}");
    // Every run renews the lock with the token of the first.
    let lock = lock_status(&server).await;
    let holder = &lock.holders[0];
    assert_eq!(
        (holder.owner.as_str(), holder.session.as_str(), holder.token),
        ("web-1", "engine", 1)
    );
    assert_eq!(holder.reason.as_deref(), Some("master"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_trigger_that_the_node_may_not_fire_fails_with_the_servers_reason() {
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let _agent = start_joined(&machine, &server).await;
    let limits = TriggerLimits {
        fired_by: vec![name("db-1").into()],
        ..TriggerLimits::default()
    };
    let defined = server.operator.put::<_, ()>("/v1/triggers/go", &limits);
    defined.await.expect("defined");
    compile_resources(&server, "web-1", "production", "c1", b"x", cue()).await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let denied = run(&server, None).await;
    assert_eq!(denied.finished().ending, RunEnding::Failed);
    let text = format!("{:?}", denied.resources);
    assert!(text.contains("`web-1` may not fire `go`"), "{text}");
    server.shutdown().await;
}

/// Restarts the same server on the same port.
async fn restarted(mut server: TestServer) -> TestServer {
    let (directory, mut options) = (server.directory(), server.options());
    options.listen = server.address();
    server.shutdown().await;
    TestServer::open(directory, options).await
}

async fn reports(server: &TestServer) -> Vec<ReportSummary> {
    let page: ReportPage = server
        .operator
        .get("/v1/reports?node=web-1&limit=1000")
        .await
        .expect("a page");
    page.reports
}

#[tokio::test]
async fn with_every_server_away_the_node_works_from_its_cache_and_says_so() {
    let server = TestServer::start().await;
    let machine = Machine::new();
    let agent = start(machine.joined(&server).await);
    is_known(&server).await;
    compile(&server, "c1", "kept\n").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(
        run(&server, None).await.finished().ending,
        RunEnding::Succeeded
    );
    let mut options = machine.options(&server, None);
    options.runs.interval = Some(Duration::from_millis(300));
    let (directory, mut server_options) = (server.directory(), server.options());
    server_options.listen = server.address();
    let mut server = server;
    server.shutdown().await;
    drop(agent);
    // Restarts the agent while no server is running.
    std::fs::remove_file(machine.root("motd")).expect("removed");
    let _agent = start(options);
    eventually(async || text(&machine.root("motd")).as_deref() == Some("kept\n")).await;
    let mut server = TestServer::open(directory, server_options).await;
    eventually(async || {
        let all = reports(&server).await;
        all.iter().any(|report| {
            report.started.from_cache
                && report.counts.changed == 1
                && report.started.causes == [Cause::Schedule]
        })
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn what_was_delivered_for_noop_only_is_never_enforced_not_even_from_the_cache() {
    let server = TestServer::start().await;
    let machine = Machine::new();
    let agent = start(machine.joined(&server).await);
    is_known(&server).await;
    compile(&server, "c1", "only to look at\n").await;
    release(&server, ReleaseTo::Everything, RunMode::Noop)
        .await
        .expect("released");
    let asked = run(&server, Some(RunMode::Enforce)).await;
    assert_eq!(asked.started().mode, RunMode::Noop);
    assert_eq!(asked.resources[0].status, EventStatus::Pending);
    let mut options = machine.options(&server, None);
    options.runs.interval = Some(Duration::from_millis(100));
    let (directory, mut server_options) = (server.directory(), server.options());
    server_options.listen = server.address();
    let mut server = server;
    server.shutdown().await;
    drop(agent);
    let _agent = start(options);
    let spool = machine.directory.path().join("agent/spool");
    let spooled = || std::fs::read_dir(&spool).map_or(0, |entries| entries.count());
    eventually(async || spooled() >= 3).await;
    let mut server = TestServer::open(directory, server_options).await;
    eventually(async || {
        let all = reports(&server).await;
        all.iter()
            .filter(|report| report.started.from_cache)
            .count()
            >= 2
    })
    .await;
    for report in reports(&server).await {
        assert_eq!(report.started.mode, RunMode::Noop, "{report:?}");
    }
    assert_eq!(text(&machine.root("motd")), None);
    server.shutdown().await;
}

#[tokio::test]
async fn a_catalog_that_is_too_large_or_that_the_engine_does_not_know_is_refused_with_the_reason() {
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let mut options = machine.joined(&server).await;
    options.runs.engine.catalogs.largest_catalog = 2_000;
    let _agent = start(options);
    is_known(&server).await;
    let many = (0..100)
        .map(|number| json!({"type": "Notify", "title": format!("n{number}")}))
        .collect();
    compile_resources(&server, "web-1", "production", "c1", b"x", many).await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let large = run(&server, None).await;
    assert_eq!(large.finished().ending, RunEnding::NotStarted);
    let why = large.finished().message.clone().expect("why");
    assert!(why.contains("limit of 2000 bytes"), "{why}");
    let odd = vec![json!({"type": "File", "title": "/x", "parameters": {"colour": "red"}})];
    compile_resources(&server, "web-1", "production", "c2", b"x", odd).await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let odd = run(&server, None).await;
    let why = odd.finished().message.clone().expect("why");
    assert!(why.contains("colour"), "{why}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_new_release_is_applied_on_notification_if_configured() {
    let server = TestServer::start().await;
    let machine = Machine::new();
    let mut options = machine.joined(&server).await;
    options.runs.on_release = true;
    let _agent = start(options);
    is_known(&server).await;
    for (code, content) in [("c1", "one\n"), ("c2", "two\n")] {
        compile(&server, code, content).await;
        release(&server, ReleaseTo::Everything, RunMode::Enforce)
            .await
            .expect("released");
        eventually(async || text(&machine.root("motd")).as_deref() == Some(content)).await;
    }
    let server = restarted(server).await;
    let mut server = server;
    eventually(async || {
        let all = reports(&server).await;
        all.len() == 2 && all.iter().all(|report| report.finished.is_some())
    })
    .await;
    server.shutdown().await;
}

/// Runs `web-1` alone as an ordered run, and returns how its step ended.
async fn ordered(
    server: &TestServer,
    subject: bunraku_plan::run::OrderedRunSubject,
) -> Result<bunraku_plan::run::StepStatus, bunraku_wire::ClientError> {
    use bunraku_plan::run::{NewRun, Run, RunDetail, RunRecord};
    let text = "applications: {a: {components: {web: {node: web-1}}}}";
    let inventory = bunraku_plan::Inventory::default();
    let site = bunraku_plan::site_file("site.yaml", text, &inventory).expect("a site");
    let plan = bunraku_plan::plan_site(&site, &bunraku_plan::PlanOptions::default());
    let plan = plan.expect("a plan");
    let new = NewRun::of(plan.with_options(Default::default(), subject));
    let record: RunRecord = server.operator.post("/v1/runs", &new).await?;
    let path = format!("/v1/runs/{}", record.id);
    eventually(async || {
        let detail: RunDetail = server.operator.get(&path).await.expect("the run");
        detail.end.is_some()
    })
    .await;
    let detail: RunDetail = server.operator.get(&path).await?;
    let (run, _) = Run::of_record(&detail.record, Arc::new(detail.plan), detail.log.entries);
    Ok(run.statuses()[0].clone())
}

#[tokio::test]
async fn an_ordered_run_of_a_release_applies_that_release_or_nothing() {
    use bunraku_model::ReleaseNumber;
    use bunraku_plan::run::{OrderedRunSubject, StepState};
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let _agent = start(machine.joined(&server).await);
    for (code, content) in [("c1", "one\n"), ("c2", "two\n")] {
        compile(&server, code, content).await;
        release(&server, ReleaseTo::Everything, RunMode::Enforce)
            .await
            .expect("released");
    }
    let of = |number| OrderedRunSubject::Release {
        release: ReleaseNumber(number),
    };
    // The node's target is another release by now, and that one must not be applied instead.
    let older = ordered(&server, of(1)).await.expect_err("it is stale");
    assert_eq!(older.status(), Some(409), "{older}");
    let why = older.to_string();
    assert!(why.contains("web-1: the plan says catalog"), "{why}");
    assert!(why.contains("of release 2 now"), "{why}");
    assert_eq!(text(&machine.root("motd")), None);
    let newer = ordered(&server, of(2)).await.expect("taken in");
    assert_eq!(newer.state, StepState::Succeeded, "{newer:?}");
    assert_eq!(text(&machine.root("motd")).as_deref(), Some("two\n"));
    let unknown = ordered(&server, of(9)).await.expect_err("there is none");
    assert_eq!(unknown.status(), Some(404), "{unknown}");
    server.shutdown().await;
}

/// Returns a plan for `web-1` alone, with its work as the server sees it now.
async fn bound_plan(server: &TestServer) -> bunraku_plan::RunPlan {
    let text = "applications: {a: {components: {web: {node: web-1}}}}";
    let inventory = bunraku_plan::Inventory::default();
    let site = bunraku_plan::site_file("site.yaml", text, &inventory).expect("a site");
    let plan = bunraku_plan::plan_site(&site, &bunraku_plan::PlanOptions::default());
    let review = bunraku_plan::ReviewPlan {
        plan: plan.expect("a plan"),
        held: false,
    };
    let reply = server.operator.call_with(BindPlan, &review).await;
    reply.expect("a plan").plan
}

/// Returns the holders of a plan's catalog.
async fn holders(server: &TestServer, plan: &bunraku_plan::RunPlan) -> Vec<String> {
    let work = plan.steps[0].work.as_ref().expect("it is bound");
    let catalog = work.catalog().expect("it applies a catalog").catalog;
    use bunraku_store::Store;
    let prefix = bunraku_control::keys::catalog_holds(catalog);
    let range = bunraku_store::Range::prefix(prefix.clone());
    let held = server.store().range(range).await.expect("readable").items;
    let held = held.into_iter();
    held.map(|item| item.key[prefix.len()..].to_owned())
        .collect()
}

#[tokio::test]
async fn a_plan_that_is_stale_is_refused_and_the_catalogs_of_a_run_are_held_while_it_may_need_them()
{
    use bunraku_plan::run::{NewRun, RunOutcome};
    let mut server = TestServer::start().await;
    let machine = Machine::new();
    let agent = start(machine.joined(&server).await);
    is_known(&server).await;
    compile(&server, "c1", "one\n").await;
    let released = release(&server, ReleaseTo::Everything, RunMode::Enforce).await;
    released.expect("released");
    let old = bound_plan(&server).await;
    // Only ordered runs name planned work.
    let work = old.steps[0].work.clone().map(Box::new);
    let request = RunRequest {
        subject: bunraku_wire::api::RunSubject::Configured {
            environment: None,
            planned: work,
        },
        ..RunRequest::new(NodeRunId(Uuid::now_v7()), Vec::new())
    };
    let command = SendCommand {
        nodes: vec![name("web-1")],
        command: Command::Run(Box::new(request)),
        ttl_seconds: 60,
    };
    let sent = server
        .operator
        .post::<_, Vec<SentCommand>>("/v1/commands", &command);
    assert_eq!(sent.await.expect_err("refused").status(), Some(400));

    compile(&server, "c2", "two\n").await;
    let released = release(&server, ReleaseTo::Everything, RunMode::Enforce).await;
    released.expect("released");
    let stale = server.operator.call_with(CreateRun, &NewRun::of(old)).await;
    let stale = stale.expect_err("it is stale");
    assert_eq!(stale.status(), Some(409), "{stale}");
    assert!(
        stale.to_string().contains("web-1: the plan says"),
        "{stale}"
    );
    assert_eq!(text(&machine.root("motd")), None);

    // While the node is away nothing runs, and the catalog stays for a later attempt.
    drop(agent);
    eventually(async || {
        let nodes = server.operator.call(ListNodes).await.expect("nodes");
        nodes
            .iter()
            .all(|node| node.word == bunraku_model::StatusWord::Lost)
    })
    .await;
    let plan = bound_plan(&server).await;
    let ended = async |new: &NewRun| {
        let record = server.operator.call_with(CreateRun, new).await;
        let id = record.expect("accepted").id;
        let at = || ShowRun.at(&id.to_string());
        eventually(async || {
            let detail = server.operator.call(at()).await.expect("the run");
            detail.end.is_some()
        })
        .await;
        let detail = server.operator.call(at()).await.expect("the run");
        (id, detail.end.expect("it has ended").outcome)
    };
    let (refused, outcome) = ended(&NewRun::of(plan.clone())).await;
    assert_eq!(outcome, RunOutcome::Refused);
    let pin = format!("runs/{refused}");
    assert!(holders(&server, &plan).await.contains(&pin));

    let _agent = start(machine.options(&server, None));
    eventually(async || {
        let nodes = server.operator.call(ListNodes).await.expect("nodes");
        nodes
            .iter()
            .all(|node| node.word == bunraku_model::StatusWord::Idle)
    })
    .await;
    let resumed = NewRun {
        resumes: Some(refused),
        ..NewRun::of(plan.clone())
    };
    let (done, outcome) = ended(&resumed).await;
    assert_eq!(outcome, RunOutcome::Succeeded);
    assert_eq!(text(&machine.root("motd")).as_deref(), Some("two\n"));
    eventually(async || {
        let pin = format!("runs/{done}");
        !holders(&server, &plan).await.contains(&pin)
    })
    .await;
    server.shutdown().await;
}
