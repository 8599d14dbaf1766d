//! Every key that the services write, in one place.
//!
//! One writer per key (see each line), so that nobody overwrites what another
//! part decided.

use bunraku_model::{
    AppName, CatalogId, CodeId, CommandId, EnvironmentName, LockName, NodeName, NodeRunId,
    ReleaseNumber, RepositoryName, RunId, ServerId, TriggerName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// All nodes.
pub const NODES: &str = "nodes/";
/// Submitted facts that wait to be persisted, one entry per node.
pub const FACT_QUEUE: &str = "fact-queue/";
/// Everything that servers pass on to agents. It is followed as one, so that agents get it in
/// the order in which it was written.
pub const STREAMS: &str = "streams/";
/// The pending commands of all nodes. They sort before [`TARGETS`]: when all of
/// [`STREAMS`] is read in several pages, no target is older than the commands read with it.
pub const PENDING_COMMANDS: &str = "streams/commands/";
/// All targets: the released catalog that each node should apply.
pub const TARGETS: &str = "streams/targets/";
/// Recent answers to commands.
pub const COMMAND_RESULTS: &str = "commands/results/";
/// The place of pending commands before they were followed together with targets.
pub const FORMER_PENDING_COMMANDS: &str = "commands/pending/";
/// The place of targets before they were followed together with commands.
pub const FORMER_TARGETS: &str = "targets/";
/// The servers that are alive, each bound to its lease.
pub const SERVERS: &str = "servers/";
/// The nodes that are connected to each server.
pub const SERVER_SESSIONS: &str = "server-sessions/";
/// The servers that may have sessions: those that are alive, and dead ones until their
/// connections are closed.
pub const SESSION_SERVERS: &str = "session-servers/";
/// The server that closes the connections of a dead one.
pub const SERVER_CLEANUPS: &str = "server-cleanups/";
/// Written once: all connections from before servers listed their sessions were checked.
pub const SESSIONS_LISTED: &str = "sessions-listed";
/// Certificates that were signed, by name and serial.
pub const CERTIFICATES: &str = "certificates/";
/// Revoked certificates that Puppet signed, by serial.
pub const REVOKED_SERIALS: &str = "revoked-serials/";
/// Written by servers when the data was restored from a backup, and by the operator who reviews
/// that.
pub const EPOCH: &str = "epoch";
/// Written by operators and servers: the replacement of the CA.
pub const ROTATION: &str = "authority-rotation";
/// Written by operators: all access rules.
pub const ACCESS_RULES: &str = "access-rules";
/// Which CA each holder of a certificate uses, while the CA is replaced.
pub const AUTHORITY_CONFIRMED: &str = "authority-confirmed/";
/// Requests that wait for an operator, by name.
pub const REQUESTS: &str = "certificate-requests/";
/// The plans of all runs.
pub const RUN_PLANS: &str = "run-plans/";
/// The logs of all once tasks.
pub const ONCE_LOGS: &str = "once-logs/";
/// Join tokens, by the hash of the token.
pub const TOKENS: &str = "join-tokens/";

/// All environments.
pub const ENVIRONMENTS: &str = "environments/";
/// All control repositories.
pub const REPOSITORIES: &str = "repositories/";
/// The server that deploys an environment.
pub const DEPLOY_CLAIMS: &str = "deploy-claims/";
/// Fetched code, by environment and commit.
pub const CODE: &str = "code/";
/// The plugins of each environment's deployed code.
pub const CODE_PLUGINS: &str = "code-plugins/";
/// Nodes that wait to be compiled.
pub const COMPILE_QUEUE: &str = "compile-queue/";
/// The server that compiles a node.
pub const COMPILE_CLAIMS: &str = "compile-claims/";
/// Compiles that are under way, or that killed what compiled them.
pub const COMPILE_ATTEMPTS: &str = "compile-attempts/";
/// The outcome of each node's newest compile.
pub const COMPILE_STATUS: &str = "compile-status/";
/// The newest good catalog of each node.
pub const COMPILED: &str = "compiled/";
/// What each node's code asked about other nodes.
pub const COMPILE_READS: &str = "compile-reads/";
/// The newest failure of each node.
pub const COMPILE_ERRORS: &str = "compile-errors/";
/// All stored catalogs, by id.
pub const CATALOGS: &str = "catalogs/";

/// Written when the node's certificate is signed, then by operators.
pub fn node_record(node: &NodeName) -> String {
    format!("{NODES}{node}/record")
}

/// Written by the server that serves the node's stream, or by the server that
/// cleans up after a dead one.
pub fn node_connection(node: &NodeName) -> String {
    format!("{NODES}{node}/connection")
}

/// Written by the node.
pub fn node_activity(node: &NodeName) -> String {
    format!("{NODES}{node}/activity")
}

/// Written by the report service: the outcome of the newest run that has ended.
pub fn node_last_run(node: &NodeName) -> String {
    format!("{NODES}{node}/last-run")
}

/// Written by the fact service: the newest facts.
pub fn node_facts(node: &NodeName) -> String {
    format!("{NODES}{node}/facts")
}

/// Written by the fact service: earlier facts.
pub fn node_fact_history(node: &NodeName) -> String {
    format!("{NODES}{node}/fact-history")
}

/// Written when facts are submitted; deleted when they are persisted.
pub fn fact_queue(node: &NodeName) -> String {
    format!("{FACT_QUEUE}{node}")
}

/// Returns the node of a key under [`FACT_QUEUE`].
pub fn parse_fact_queue(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(FACT_QUEUE)?).ok()
}

/// Written by the node: its run queue.
pub fn node_queue(node: &NodeName) -> String {
    format!("{NODES}{node}/queue")
}

/// All documents of one node.
pub fn node_prefix(node: &NodeName) -> String {
    format!("{NODES}{node}/")
}

/// Returns the node and the document of a key under [`NODES`].
pub fn parse_node_key(key: &str) -> Option<(NodeName, &str)> {
    let (name, document) = key.strip_prefix(NODES)?.split_once('/')?;
    Some((NodeName::new(name).ok()?, document))
}

/// Written by the command service; deleted with the answer.
pub fn command_pending(node: &NodeName, id: CommandId) -> String {
    format!("{}{id}", command_pending_prefix(node))
}

pub fn command_pending_prefix(node: &NodeName) -> String {
    format!("{PENDING_COMMANDS}{node}/")
}

/// The pending commands of all nodes.
pub fn all_pending_commands() -> String {
    PENDING_COMMANDS.to_owned()
}

/// Returns the node and the command of a key under [`PENDING_COMMANDS`].
pub fn parse_pending_command(key: &str) -> Option<(NodeName, CommandId)> {
    let (node, id) = key.strip_prefix(PENDING_COMMANDS)?.split_once('/')?;
    Some((NodeName::new(node).ok()?, id.parse().ok()?))
}

/// Written with the node's answer.
pub fn command_result(node: &NodeName, id: CommandId) -> String {
    format!("{}{id}", command_result_prefix(node))
}

pub fn command_result_prefix(node: &NodeName) -> String {
    format!("{COMMAND_RESULTS}{node}/")
}

/// Written by the server itself, bound to its lease.
pub fn server(id: ServerId) -> String {
    format!("{SERVERS}{id}")
}

/// Returns the server of a key under [`SERVERS`].
pub fn parse_server(key: &str) -> Option<ServerId> {
    key.strip_prefix(SERVERS)?.parse().ok()
}

/// Written and deleted with the node's connection.
pub fn server_session(server: ServerId, node: &NodeName) -> String {
    format!("{}{node}", server_sessions(server))
}

/// The nodes that are connected to one server.
pub fn server_sessions(server: ServerId) -> String {
    format!("{SERVER_SESSIONS}{server}/")
}

/// Returns the server and the node of a key under [`SERVER_SESSIONS`].
pub fn parse_server_session(key: &str) -> Option<(ServerId, NodeName)> {
    let (server, node) = key.strip_prefix(SERVER_SESSIONS)?.split_once('/')?;
    Some((server.parse().ok()?, NodeName::new(node).ok()?))
}

/// Written when the server registers; deleted when its connections are closed.
pub fn session_server(server: ServerId) -> String {
    format!("{SESSION_SERVERS}{server}")
}

/// Returns the server of a key under [`SESSION_SERVERS`].
pub fn parse_session_server(key: &str) -> Option<ServerId> {
    key.strip_prefix(SESSION_SERVERS)?.parse().ok()
}

/// Written by the server that closes the connections of a dead one, bound to its own lease.
pub fn server_cleanup(dead: ServerId) -> String {
    format!("{SERVER_CLEANUPS}{dead}")
}

/// Written when a certificate is signed, and when it is revoked.
pub fn certificate(name: &NodeName, serial: &str) -> String {
    format!("{}{serial}", certificates_of(name))
}

/// The name and the serial of a key under [`CERTIFICATES`].
pub fn parse_certificate(key: &str) -> Option<(NodeName, String)> {
    let (name, serial) = key.strip_prefix(CERTIFICATES)?.split_once('/')?;
    Some((NodeName::new(name).ok()?, serial.to_owned()))
}

/// All certificates of one name.
pub fn certificates_of(name: &NodeName) -> String {
    format!("{CERTIFICATES}{name}/")
}

/// Written with every certificate: which key the name belongs to. Written by a revocation of
/// the whole name: nothing may be renewed.
pub fn name_claim(name: &NodeName) -> String {
    format!("certificate-names/{name}")
}

/// Written when a certificate without an entry of its own is revoked: one that Puppet signed.
pub fn revoked_serial(serial: &str) -> String {
    format!("{REVOKED_SERIALS}{serial}")
}

/// Written when the holder uses a certificate of the wanted CA.
pub fn authority_confirmed(name: &NodeName) -> String {
    format!("{AUTHORITY_CONFIRMED}{name}")
}

/// Written by the join endpoint; deleted when it is signed or rejected.
pub fn certificate_request(node: &NodeName) -> String {
    format!("{REQUESTS}{node}")
}

/// Written when a token is created; deleted when it is used.
pub fn join_token(id: &str) -> String {
    format!("{TOKENS}{id}")
}

/// Once tasks.
pub const ONCE: &str = "once/";

/// All documents of one task except its logs.
pub fn once_prefix(app: &AppName) -> String {
    format!("{ONCE}{app}/")
}

/// Written when the task is defined, and by hosts that contribute.
pub fn once_parts(app: &AppName) -> String {
    format!("{ONCE}{app}/parts")
}

/// Written with a claim, with its outcome, and by a reset.
pub fn once_state(app: &AppName) -> String {
    format!("{ONCE}{app}/state")
}

/// Written with a claim and bound to its lease; deleted with the outcome.
pub fn once_claim(app: &AppName) -> String {
    format!("{ONCE}{app}/claim")
}

/// Returns the task of a key under [`ONCE`].
pub fn parse_once_key(key: &str) -> Option<AppName> {
    let (app, _) = key.strip_prefix(ONCE)?.split_once('/')?;
    AppName::new(app).ok()
}

/// Written by the claimant while its claim lives; deleted when its attempt is forgotten.
pub fn once_log(app: &AppName, token: u64) -> String {
    format!("{ONCE_LOGS}{app}/{token:020}")
}

/// Locks.
pub const LOCKS: &str = "locks/";

/// All documents of one lock.
pub fn lock_prefix(name: &LockName) -> String {
    format!("{LOCKS}{name}/")
}

/// Written by the lock service: the holders and the queue.
pub fn lock_line(name: &LockName) -> String {
    format!("{LOCKS}{name}/line")
}

/// Written by the lock service, bound to the lease of a holder or waiter.
pub fn lock_session(name: &LockName, owner: &str, session: &str) -> String {
    format!("{LOCKS}{name}/sessions/{owner}/{session}")
}

/// Returns the lock of a key under [`LOCKS`].
pub fn parse_lock_key(key: &str) -> Option<LockName> {
    let (name, _) = key.strip_prefix(LOCKS)?.split_once('/')?;
    LockName::new(name).ok()
}

/// Nodes whose templates read the holders of a lock, by lock.
pub const LOCK_READERS: &str = "lock-readers/";

/// Nodes whose templates read the holders of this lock.
pub fn lock_readers(name: &LockName) -> String {
    format!("{LOCK_READERS}{name}/")
}

/// Written by the server that compiles the node: the holders that its templates
/// read. Deleted with the request to compile the node again.
pub fn lock_reader(name: &LockName, node: &NodeName) -> String {
    format!("{LOCK_READERS}{name}/{node}")
}

/// Returns the lock and the node of a key under [`LOCK_READERS`].
pub fn parse_lock_reader(key: &str) -> Option<(LockName, NodeName)> {
    let (lock, node) = key.strip_prefix(LOCK_READERS)?.split_once('/')?;
    Some((LockName::new(lock).ok()?, NodeName::new(node).ok()?))
}

/// The definitions of triggers, by name.
pub const TRIGGER_LIMITS: &str = "triggers/limits/";
/// Delayed firings, by trigger.
pub const TRIGGER_HELD: &str = "triggers/held/";
/// The pending firings of each node.
pub const TRIGGER_QUEUES: &str = "triggers/queues/";
/// The history of triggers; only the newest events are kept.
pub const TRIGGER_EVENTS: &str = "triggers/events/";

/// Written by operators.
pub fn trigger_limits(trigger: &TriggerName) -> String {
    format!("{TRIGGER_LIMITS}{trigger}")
}

/// Written by the trigger service with each firing of a trigger with limits.
pub fn trigger_held(trigger: &TriggerName) -> String {
    format!("{TRIGGER_HELD}{trigger}")
}

/// Written by the trigger service; deleted when nothing is pending or being delivered.
pub fn trigger_queue(node: &NodeName) -> String {
    format!("{TRIGGER_QUEUES}{node}")
}

/// Returns the node of a key under [`TRIGGER_QUEUES`].
pub fn parse_trigger_queue(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(TRIGGER_QUEUES)?).ok()
}

/// Written by the trigger service, once.
pub fn trigger_event(id: uuid::Uuid) -> String {
    format!("{TRIGGER_EVENTS}{id}")
}

/// Written by the trigger service when the node fires a trigger: how often it did.
pub fn trigger_budget(node: &NodeName) -> String {
    format!("triggers/budgets/{node}")
}

/// Firings that other services have requested.
pub const TRIGGER_ANNOUNCED: &str = "triggers/announced/";

/// Written by the lock service when holders change, by reactors, and when limits
/// release a delayed firing; deleted when it was fired.
pub fn trigger_announced(id: bunraku_model::FiringId) -> String {
    format!("{TRIGGER_ANNOUNCED}{id}")
}

/// Events that a reactor may match, until they are evaluated.
pub const REACTOR_EVENTS: &str = "reactors/events/";
/// Delayed work of reactors.
pub const REACTOR_LATER: &str = "reactors/later/";
/// Events that the limits of reactors delay.
pub const REACTOR_HELD: &str = "reactors/later/held/";
/// Lost nodes that may return in time.
pub const REACTOR_WAITS: &str = "reactors/later/waits/";

/// Requests for approval.
pub const APPROVALS: &str = "approvals/";

/// Written by the request for a run or release, and by the operator who decides. The result of an
/// approved release is written by the server that creates it.
pub fn approval(id: &str) -> String {
    format!("{APPROVALS}{id}")
}

/// Ordered runs that reactors ask for, until they are planned.
pub const REACTOR_RUNS: &str = "reactors/runs/";

/// Written by the reactor service with the reaction to an event; deleted by the run service in
/// the transaction that records whether the run was started.
pub fn reactor_run(id: bunraku_model::RunId) -> String {
    format!("{REACTOR_RUNS}{id}")
}

/// Written by reports, presence, facts, hooks, nodes, runs and releases with the event; deleted in
/// the transaction that reacts to it.
pub fn reactor_event(id: uuid::Uuid) -> String {
    format!("{REACTOR_EVENTS}{id}")
}

/// Written by the hook that receives alerts: those it knows, so that a repetition is recognised.
pub fn reactor_alerts(environment: &EnvironmentName) -> String {
    format!("reactors/alerts/{environment}")
}

/// Written and deleted by the reactor service.
pub fn reactor_wait(id: uuid::Uuid) -> String {
    format!("{REACTOR_WAITS}{id}")
}

/// All events that one reactor's limits delay.
pub fn reactor_held_of(environment: &EnvironmentName, reactor: &str) -> String {
    format!("{REACTOR_HELD}{environment}/{reactor}/")
}

/// Written and deleted by the reactor service: of all nodes, or of one.
pub fn reactor_held(
    environment: &EnvironmentName,
    reactor: &str,
    node: Option<&NodeName>,
) -> String {
    let node = node.map(NodeName::as_str).unwrap_or_default();
    format!("{}{node}", reactor_held_of(environment, reactor))
}

/// Returns the environment and the reactor of a key under [`REACTOR_HELD`].
pub fn parse_reactor_held(key: &str) -> Option<(EnvironmentName, &str)> {
    let (environment, rest) = key.strip_prefix(REACTOR_HELD)?.split_once('/')?;
    let (reactor, _) = rest.split_once('/')?;
    Some((EnvironmentName::new(environment).ok()?, reactor))
}

/// Written with each deploy: the rules of its code.
pub fn environment_reactors(environment: &EnvironmentName) -> String {
    format!("{}reactors", environment_prefix(environment))
}

/// Written by the report service and by operators: the place of history, and where it is moved from.
pub const HISTORY_PLACE: &str = "history";
/// Written by the server that moves history, bound to its lease.
pub const HISTORY_MOVER: &str = "leaders/history";
/// Reports without their events, by node and run.
pub const REPORTS: &str = "reports/";
/// Events of reports that are not yet merged.
pub const REPORT_EVENTS: &str = "report-events/";
/// Reports by the time when they reached a server, newest first.
pub const REPORT_TIMES: &str = "report-times/";
/// The node of each run's report.
pub const REPORT_IDS: &str = "report-ids/";
/// Reports that are not finished or not yet merged.
pub const OPEN_REPORTS: &str = "report-open/";

/// Written by the report service.
pub fn report(node: &NodeName, run: NodeRunId) -> String {
    format!("{}{run}", reports_of(node))
}

/// All reports of one node.
pub fn reports_of(node: &NodeName) -> String {
    format!("{REPORTS}{node}/")
}

/// Returns the report of a key under [`REPORTS`].
pub fn parse_report(key: &str) -> Option<(NodeName, NodeRunId)> {
    parse_node_run(key.strip_prefix(REPORTS)?)
}

/// Written by the report service: some events, from this number on.
pub fn report_events(node: &NodeName, run: NodeRunId, first: u64) -> String {
    format!("{}{first:020}", report_events_of(node, run))
}

/// All events of one report.
pub fn report_events_of(node: &NodeName, run: NodeRunId) -> String {
    format!("{}{run}/", report_events_of_node(node))
}

/// Written when a small report is finished: all its events, compressed.
pub fn report_packed(node: &NodeName, run: NodeRunId) -> String {
    format!("report-packed/{node}/{run}")
}

/// All events of one node's reports.
pub fn report_events_of_node(node: &NodeName) -> String {
    format!("{REPORT_EVENTS}{node}/")
}

/// Returns the time and the run of a key under [`REPORT_TIMES`].
pub fn parse_report_time(key: &str) -> Option<(Timestamp, NodeRunId)> {
    let (time, run) = key.strip_prefix(REPORT_TIMES)?.split_once('/')?;
    let micros = u64::MAX - u64::from_str_radix(time, 16).ok()?;
    let time = Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()?;
    Some((time, run.parse().ok()?))
}

/// Returns the report and the first event of a key under [`REPORT_EVENTS`].
pub fn parse_report_events(key: &str) -> Option<(NodeName, NodeRunId, u64)> {
    let (report, first) = key.strip_prefix(REPORT_EVENTS)?.rsplit_once('/')?;
    let (node, run) = parse_node_run(report)?;
    Some((node, run, first.parse().ok()?))
}

/// Written with a report's first event. The newest sorts first.
pub fn report_time(received: Timestamp, run: NodeRunId) -> String {
    format!("{}/{run}", report_times_from(received))
}

/// The first key of reports that were received at this time or earlier.
pub fn report_times_from(received: Timestamp) -> String {
    let micros = u64::try_from(received.as_microsecond()).unwrap_or(0);
    format!("{REPORT_TIMES}{:016x}", u64::MAX - micros)
}

/// Written with a report's first event, for its run and for those merged into it.
pub fn report_id(run: NodeRunId) -> String {
    format!("{REPORT_IDS}{run}")
}

/// Written with a report's first event; deleted when its events are merged.
pub fn open_report(node: &NodeName, run: NodeRunId) -> String {
    format!("{}{run}", open_reports_of(node))
}

/// Returns the prefix of a node's unfinished reports.
pub fn open_reports_of(node: &NodeName) -> String {
    format!("{OPEN_REPORTS}{node}/")
}

/// Returns the report of a key under [`OPEN_REPORTS`].
pub fn parse_open_report(key: &str) -> Option<(NodeName, NodeRunId)> {
    parse_node_run(key.strip_prefix(OPEN_REPORTS)?)
}

fn parse_node_run(text: &str) -> Option<(NodeName, NodeRunId)> {
    let (node, run) = text.split_once('/')?;
    Some((NodeName::new(node).ok()?, run.parse().ok()?))
}

/// Written when a catalog is stored, and by the collector.
pub fn catalog(id: CatalogId) -> String {
    format!("{CATALOGS}{id}")
}

/// Returns the catalog of a key under [`CATALOGS`].
pub fn parse_catalog(key: &str) -> Option<CatalogId> {
    key.strip_prefix(CATALOGS)?.parse().ok()
}

/// Written by the holder of the catalog, under its own name.
pub fn catalog_hold(id: CatalogId, holder: &str) -> String {
    format!("{}{holder}", catalog_holds(id))
}

/// All holders of a catalog.
pub fn catalog_holds(id: CatalogId) -> String {
    format!("catalog-holds/{id}/")
}

/// Written by the compile service when the node's catalog changes.
pub fn compiled(node: &NodeName) -> String {
    format!("{COMPILED}{node}")
}

/// Written by the compile service when a compile fails; deleted when one succeeds.
pub fn compile_error(node: &NodeName) -> String {
    format!("{COMPILE_ERRORS}{node}")
}

/// Written with each request to compile; deleted with the outcome.
pub fn compile_request(node: &NodeName) -> String {
    format!("{COMPILE_QUEUE}{node}")
}

/// Written by the server that compiles the node, bound to its lease.
pub fn compile_claim(node: &NodeName) -> String {
    format!("{COMPILE_CLAIMS}{node}")
}

/// Written with the claim; deleted with the outcome, unless the compile killed
/// its worker or its server.
pub fn compile_attempt(node: &NodeName) -> String {
    format!("{COMPILE_ATTEMPTS}{node}")
}

/// Written by the compile service with every outcome.
pub fn compile_status(node: &NodeName) -> String {
    format!("{COMPILE_STATUS}{node}")
}

/// Written by the compile service with every outcome, if the code asked about
/// other nodes, and when an answer is outdated.
pub fn compile_reads(node: &NodeName) -> String {
    format!("{COMPILE_READS}{node}")
}

/// Returns the node of a key under one of the compile prefixes.
pub fn parse_node_below(prefix: &str, key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(prefix)?).ok()
}

/// All documents of one environment.
pub fn environment_prefix(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/")
}

/// Written by operators.
pub fn environment_settings(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/settings")
}

/// Written by operators: the secret of webhooks.
pub fn environment_secret(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/secret")
}

/// Written by the deploy service: the deployed code.
pub fn environment_deployed(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/deployed")
}

/// Written with the deploy of a chosen commit; deleted when a person lifts the pin.
pub fn environment_pin(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/pin")
}

/// Written by the server that polls repositories.
pub fn environment_poll(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/poll")
}

/// Everything of one repository.
pub fn repository_prefix(repository: &RepositoryName) -> String {
    format!("{REPOSITORIES}{repository}/")
}

/// Written by operators.
pub fn repository_settings(repository: &RepositoryName) -> String {
    format!("{REPOSITORIES}{repository}/settings")
}

/// Written with the settings: the secret of the webhook.
pub fn repository_secret(repository: &RepositoryName) -> String {
    format!("{REPOSITORIES}{repository}/secret")
}

/// Written with each request to synchronize.
pub fn repository_request(repository: &RepositoryName) -> String {
    format!("{REPOSITORIES}{repository}/request")
}

/// Written by the server that synchronizes repositories: what it found.
pub fn repository_sync(repository: &RepositoryName) -> String {
    format!("{REPOSITORIES}{repository}/sync")
}

/// Which repository, and which of its documents, a key under [`REPOSITORIES`] names.
pub fn parse_repository_key(key: &str) -> Option<(RepositoryName, &str)> {
    let (name, document) = key.strip_prefix(REPOSITORIES)?.split_once('/')?;
    Some((RepositoryName::new(name).ok()?, document))
}

/// Written with the request to deploy, then by the server that claimed it.
pub fn deploy(environment: &EnvironmentName, number: u64) -> String {
    format!("{}{number:010}", deploys(environment))
}

/// All stored deploys of an environment.
pub fn deploys(environment: &EnvironmentName) -> String {
    format!("{ENVIRONMENTS}{environment}/deploys/")
}

/// Returns the environment and the document of a key under [`ENVIRONMENTS`].
pub fn parse_environment_key(key: &str) -> Option<(EnvironmentName, &str)> {
    let (name, document) = key.strip_prefix(ENVIRONMENTS)?.split_once('/')?;
    Some((EnvironmentName::new(name).ok()?, document))
}

/// Written by the server that deploys the environment, bound to its lease.
pub fn deploy_claim(environment: &EnvironmentName) -> String {
    format!("{DEPLOY_CLAIMS}{environment}")
}

/// Written by the server that fetched the code.
pub fn code(environment: &EnvironmentName, code_id: &CodeId) -> String {
    format!("{}{code_id}", code_of(environment))
}

/// All stored code of an environment.
pub fn code_of(environment: &EnvironmentName) -> String {
    format!("{CODE}{environment}/")
}

/// Written by the first server that is asked for the plugins of the deployed code.
pub fn code_plugins(environment: &EnvironmentName) -> String {
    format!("{CODE_PLUGINS}{environment}")
}

/// The newest release of each environment.
pub const RELEASE_HEADS: &str = "release-heads/";
/// Environments in which nothing is released automatically.
pub const RELEASE_HOLDS: &str = "release-holds/";
/// All holders of catalogs.
pub const CATALOG_HOLDS: &str = "catalog-holds/";
/// Elected servers, by task.
pub const LEADERS: &str = "leaders/";
/// Written by the server that applies releases, bound to its lease.
pub const RELEASE_LEADER: &str = "leaders/releases";
/// Written by the server that synchronizes repositories, bound to its lease.
pub const REPOSITORY_LEADER: &str = "leaders/repositories";
/// Written by the server that links audit records, bound to its lease.
pub const AUDIT_LEADER: &str = "leaders/audit";
/// Written by the server that reclaims space of the store, bound to its lease.
pub const STORE_RECLAIM: &str = "leaders/store-reclaim";
/// Written by the server that moves content, bound to its lease.
pub const CONTENT_LEADER: &str = "leaders/content";
/// Written by the first server of a fleet with S3, by operators who move content, and by the server
/// that has moved it: the place that new content goes to, and the one that it leaves.
pub const CONTENT_PLACE: &str = "content-place";
/// Written by the server that moves content: what it cannot move, and why.
pub const CONTENT_MOVE: &str = "content-move";
/// Written by the servers that compact the store: the history that it keeps, and who reclaimed its
/// space last.
pub const STORE_UPKEEP: &str = "store-upkeep";

/// Returns the node of a key under [`COMPILED`].
pub fn parse_compiled(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(COMPILED)?).ok()
}

/// Written when a release is applied; deleted with the node, and by a rollback until the node has a
/// catalog of the old code.
pub fn target(node: &NodeName) -> String {
    format!("{TARGETS}{node}")
}

/// Returns the node of a key under [`TARGETS`].
pub fn parse_target(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(TARGETS)?).ok()
}

/// All stored releases of an environment, in order.
pub fn releases(environment: &EnvironmentName) -> String {
    format!("releases/{environment}/")
}

/// Written once, when the release is created; deleted when it is pruned.
pub fn release(environment: &EnvironmentName, number: ReleaseNumber) -> String {
    format!("{}{:010}", releases(environment), number.0)
}

/// Written with every release, and when the catalogs of pruned releases are freed.
pub fn release_head(environment: &EnvironmentName) -> String {
    format!("{RELEASE_HEADS}{environment}")
}

/// Returns the environment of a key under [`RELEASE_HEADS`].
pub fn parse_release_head(key: &str) -> Option<EnvironmentName> {
    EnvironmentName::new(key.strip_prefix(RELEASE_HEADS)?).ok()
}

/// Written when all targets point to the newest release, and when nodes that joined have catalogs.
pub fn release_applied(environment: &EnvironmentName) -> String {
    format!("release-applied/{environment}")
}

/// Written by operators, and by a rollback.
pub fn release_hold(environment: &EnvironmentName) -> String {
    format!("{RELEASE_HOLDS}{environment}")
}

/// Returns the environment of a key under [`RELEASE_HOLDS`].
pub fn parse_release_hold(key: &str) -> Option<EnvironmentName> {
    EnvironmentName::new(key.strip_prefix(RELEASE_HOLDS)?).ok()
}

/// Ordered runs, by id.
pub const RUN_RECORDS: &str = "run-records/";
/// The outcomes of finished runs.
pub const RUN_ENDS: &str = "run-ends/";
/// Unfinished runs, in the order of their creation.
pub const OPEN_RUNS: &str = "run-open/";

/// Written when a run is requested.
pub fn run_record(run: RunId) -> String {
    format!("{RUN_RECORDS}{run}")
}

pub fn parse_run_record(key: &str) -> Option<RunId> {
    key.strip_prefix(RUN_RECORDS)?.parse().ok()
}

/// Written with the record; deleted by the leader when the run ends.
pub fn open_run(run: RunId) -> String {
    format!("{OPEN_RUNS}{run}")
}

pub fn parse_open_run(key: &str) -> Option<RunId> {
    key.strip_prefix(OPEN_RUNS)?.parse().ok()
}

/// Written before the record: a part of the plan.
pub fn run_plan(run: RunId, piece: u32) -> String {
    format!("{}{piece:06}", run_plan_prefix(run))
}

pub fn run_plan_prefix(run: RunId) -> String {
    format!("{RUN_PLANS}{run}/")
}

/// Returns the run of a key under [`RUN_PLANS`].
pub fn parse_run_plan(key: &str) -> Option<RunId> {
    let (run, _) = key.strip_prefix(RUN_PLANS)?.split_once('/')?;
    run.parse().ok()
}

/// Written by the leader only: a batch of events.
pub fn run_log(run: RunId, batch: u64) -> String {
    format!("{}{batch:010}", run_log_prefix(run))
}

pub fn run_log_prefix(run: RunId) -> String {
    format!("run-logs/{run}/")
}

pub fn parse_run_log(key: &str) -> Option<u64> {
    key.strip_prefix("run-logs/")?
        .split_once('/')?
        .1
        .parse()
        .ok()
}

/// Written by the leader when the run ends.
pub fn run_end(run: RunId) -> String {
    format!("{RUN_ENDS}{run}")
}

pub fn parse_run_end(key: &str) -> Option<RunId> {
    key.strip_prefix(RUN_ENDS)?.parse().ok()
}

/// The servers that lead runs.
pub const RUN_LEADERS: &str = "run-leaders/";

/// Written by the server that leads the run, bound to its lease.
pub fn run_leader(run: RunId) -> String {
    format!("{RUN_LEADERS}{run}")
}

/// An operator's request to a running run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunRequestKind {
    /// Nothing new starts.
    Stop,
    /// What runs is ended.
    Cancel,
}

/// Written by operators: stop or cancel.
pub fn run_request(run: RunId, what: RunRequestKind) -> String {
    let word = match what {
        RunRequestKind::Stop => "stop",
        RunRequestKind::Cancel => "cancel",
    };
    format!("{}{word}", run_requests(run))
}

/// Written by operators: the result of a check at a gate.
pub fn run_check(run: RunId, gate: u32, check: u32) -> String {
    format!("{}check/{gate}/{check}", run_requests(run))
}

/// Returns the gate and the check of a key of a run's requests.
pub fn parse_run_check(run: RunId, key: &str) -> Option<(u32, u32)> {
    let rest = key
        .strip_prefix(&run_requests(run))?
        .strip_prefix("check/")?;
    let (gate, check) = rest.split_once('/')?;
    Some((gate.parse().ok()?, check.parse().ok()?))
}

pub fn run_requests(run: RunId) -> String {
    format!("run-requests/{run}/")
}

/// Nodes that are held by runs.
pub const NODE_HOLDS: &str = "node-holds/";

/// Written by the leader of the run that holds the node, bound to a lease that
/// lasts long enough for another leader to take over.
pub fn node_hold(node: &NodeName) -> String {
    format!("{NODE_HOLDS}{node}")
}

/// Returns the node of a key under [`NODE_HOLDS`].
pub fn parse_node_hold(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(NODE_HOLDS)?).ok()
}

/// The answers of all nodes.
pub fn all_command_results() -> String {
    COMMAND_RESULTS.to_owned()
}

/// Returns the node and the command of a key under [`all_command_results`].
pub fn parse_command_result(key: &str) -> Option<(NodeName, CommandId)> {
    let (node, id) = key.strip_prefix(COMMAND_RESULTS)?.split_once('/')?;
    Some((NodeName::new(node).ok()?, id.parse().ok()?))
}

/// Written by operators: the trusted and revoked keys of modules.
pub const MODULE_KEYS: &str = "module-keys";
/// Published modules, by name and version.
pub const MODULE_VERSIONS: &str = "module-versions/";
/// The history of modules and keys.
pub const MODULE_EVENTS: &str = "module-events/";

/// Written when a version is published, deleted when it is removed.
pub fn module_version(name: &str, version: &bunraku_module::Version) -> String {
    format!("{}{version}", module_versions(name))
}

pub fn module_versions(name: &str) -> String {
    format!("{MODULE_VERSIONS}{name}/")
}

/// Written with every version that is published; stays when it is removed.
pub fn module_newest(name: &str) -> String {
    format!("module-newest/{name}")
}

/// Written with the change that it describes; only the newest are kept.
pub fn module_event(id: uuid::Uuid) -> String {
    format!("{MODULE_EVENTS}{id}")
}

/// Written by the report service: the newest output that a node registered under a name.
pub fn node_output(node: &NodeName, name: &str) -> String {
    format!("node-outputs/{node}/{name}")
}

pub fn node_outputs(node: &NodeName) -> String {
    format!("node-outputs/{node}/")
}

/// Actions that are under way, by server.
pub const AUDIT_PENDING: &str = "audit/pending/";
/// Audit records that are not yet in the chain.
pub const AUDIT_INBOX: &str = "audit/inbox/";
/// The chain of audit records. Written by the elected server only.
pub const AUDIT_RECORDS: &str = "audit/records/";
/// Written by the elected server with every record: the newest one, and where the log begins.
pub const AUDIT_HEAD: &str = "audit/head";

/// Written by the server before an action begins; deleted with its outcome, or by the elected
/// server if this one died.
pub fn audit_pending(server: ServerId, id: uuid::Uuid) -> String {
    format!("{}{id}", audit_pending_of(server))
}

/// All actions of one server that are under way.
pub fn audit_pending_of(server: ServerId) -> String {
    format!("{AUDIT_PENDING}{server}/")
}

/// Returns the server of a key under [`AUDIT_PENDING`].
pub fn parse_audit_pending(key: &str) -> Option<ServerId> {
    let (server, _) = key.strip_prefix(AUDIT_PENDING)?.split_once('/')?;
    server.parse().ok()
}

/// Written with an action's outcome, or with the change itself; deleted when the record is in the
/// chain.
pub fn audit_inbox(id: uuid::Uuid) -> String {
    format!("{AUDIT_INBOX}{id}")
}

/// Written by the elected server: some records, from this number on.
pub fn audit_records(first: u64) -> String {
    format!("{AUDIT_RECORDS}{first:020}")
}

/// Returns the first number of a key under [`AUDIT_RECORDS`].
pub fn parse_audit_records(key: &str) -> Option<u64> {
    key.strip_prefix(AUDIT_RECORDS)?.parse().ok()
}
