//! Every key that the services write, in one place.
//!
//! One writer per key (see each line), so that nobody overwrites what another
//! part decided.

use bunraku_model::{AppName, CommandId, LockName, NodeName, ServerId, TriggerName};

/// All nodes.
pub const NODES: &str = "nodes/";
/// Submitted facts that wait to be persisted, one entry per node.
pub const FACT_QUEUE: &str = "fact-queue/";
/// All commands that wait, and recent answers.
pub const COMMANDS: &str = "commands/";
/// The servers that are alive, each bound to its lease.
pub const SERVERS: &str = "servers/";
/// Certificates that were signed, by name and serial.
pub const CERTIFICATES: &str = "certificates/";
/// Requests that wait for an operator, by name.
pub const REQUESTS: &str = "certificate-requests/";
/// Join tokens, by the hash of the token.
pub const TOKENS: &str = "join-tokens/";

/// Written when the node's certificate is signed, then by operators.
pub fn node_record(node: &NodeName) -> String {
    format!("{NODES}{node}/record")
}

/// Written by the server that holds the node's stream, or by the one that
/// buries a dead server's connections.
pub fn node_connection(node: &NodeName) -> String {
    format!("{NODES}{node}/connection")
}

/// Written by the node.
pub fn node_activity(node: &NodeName) -> String {
    format!("{NODES}{node}/activity")
}

/// Written by the fact service: which facts are the newest.
pub fn node_facts(node: &NodeName) -> String {
    format!("{NODES}{node}/facts")
}

/// Written by the fact service: which facts came before.
pub fn node_fact_history(node: &NodeName) -> String {
    format!("{NODES}{node}/fact-history")
}

/// Written when facts are submitted; deleted when they are persisted.
pub fn fact_queue(node: &NodeName) -> String {
    format!("{FACT_QUEUE}{node}")
}

/// Which node's submission a key under [`FACT_QUEUE`] is.
pub fn parse_fact_queue(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(FACT_QUEUE)?).ok()
}

/// Everything of one node.
pub fn node_prefix(node: &NodeName) -> String {
    format!("{NODES}{node}/")
}

/// Which node, and which of its documents, a key under [`NODES`] names.
pub fn parse_node_key(key: &str) -> Option<(NodeName, &str)> {
    let (name, document) = key.strip_prefix(NODES)?.split_once('/')?;
    Some((NodeName::new(name).ok()?, document))
}

/// Written by the command service; deleted with the answer.
pub fn command_pending(node: &NodeName, id: CommandId) -> String {
    format!("{}{id}", command_pending_prefix(node))
}

pub fn command_pending_prefix(node: &NodeName) -> String {
    format!("{COMMANDS}pending/{node}/")
}

/// All commands that wait, of all nodes.
pub fn all_pending_commands() -> String {
    format!("{COMMANDS}pending/")
}

/// Which node's command a key under [`all_pending_commands`] is.
pub fn parse_pending_command(key: &str) -> Option<(NodeName, CommandId)> {
    let (node, id) = key
        .strip_prefix(COMMANDS)?
        .strip_prefix("pending/")?
        .split_once('/')?;
    Some((NodeName::new(node).ok()?, id.parse().ok()?))
}

/// Written with the node's answer.
pub fn command_result(node: &NodeName, id: CommandId) -> String {
    format!("{}{id}", command_result_prefix(node))
}

pub fn command_result_prefix(node: &NodeName) -> String {
    format!("{COMMANDS}results/{node}/")
}

/// Written by the server itself, bound to its lease.
pub fn server(id: ServerId) -> String {
    format!("{SERVERS}{id}")
}

/// Written when a certificate is signed, and when it is revoked.
pub fn certificate(name: &NodeName, serial: &str) -> String {
    format!("{}{serial}", certificates_of(name))
}

/// All certificates of one name.
pub fn certificates_of(name: &NodeName) -> String {
    format!("{CERTIFICATES}{name}/")
}

/// Written with every certificate: which key the name belongs to.
pub fn name_claim(name: &NodeName) -> String {
    format!("certificate-names/{name}")
}

/// Written by the join endpoint; deleted when it is signed or rejected.
pub fn certificate_request(node: &NodeName) -> String {
    format!("{REQUESTS}{node}")
}

/// Written when a token is made; deleted when it is used.
pub fn join_token(id: &str) -> String {
    format!("{TOKENS}{id}")
}

/// Things that are done once.
pub const ONCE: &str = "once/";

/// Everything of one thing, but its logs.
pub fn once_prefix(app: &AppName) -> String {
    format!("{ONCE}{app}/")
}

/// Written by whoever defines it, and by hosts that contribute.
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

/// Which thing a key under [`ONCE`] is of.
pub fn parse_once_key(key: &str) -> Option<AppName> {
    let (app, _) = key.strip_prefix(ONCE)?.split_once('/')?;
    AppName::new(app).ok()
}

/// Written by the claimant while its claim lives; deleted when its attempt is forgotten.
pub fn once_log(app: &AppName, token: u64) -> String {
    format!("once-logs/{app}/{token:020}")
}

/// Locks.
pub const LOCKS: &str = "locks/";

/// Everything of one lock.
pub fn lock_prefix(name: &LockName) -> String {
    format!("{LOCKS}{name}/")
}

/// Written by the lock service: who holds it and who waits.
pub fn lock_line(name: &LockName) -> String {
    format!("{LOCKS}{name}/line")
}

/// Bound to the lease of somebody who holds a lock or waits for it.
pub fn lock_session(name: &LockName, owner: &str, session: &str) -> String {
    format!("{LOCKS}{name}/sessions/{owner}/{session}")
}

/// Which lock a key under [`LOCKS`] is of.
pub fn parse_lock_key(key: &str) -> Option<LockName> {
    let (name, _) = key.strip_prefix(LOCKS)?.split_once('/')?;
    LockName::new(name).ok()
}

/// Limits of triggers, by name.
pub const TRIGGER_LIMITS: &str = "triggers/limits/";
/// What limits hold back, by trigger.
pub const TRIGGER_HELD: &str = "triggers/held/";
/// What waits for each node.
pub const TRIGGER_QUEUES: &str = "triggers/queues/";
/// What happened; the newest are kept.
pub const TRIGGER_EVENTS: &str = "triggers/events/";

/// Written by operators.
pub fn trigger_limits(trigger: &TriggerName) -> String {
    format!("{TRIGGER_LIMITS}{trigger}")
}

/// Written by the trigger service with each firing of a trigger with limits.
pub fn trigger_held(trigger: &TriggerName) -> String {
    format!("{TRIGGER_HELD}{trigger}")
}

/// Written by the trigger service; deleted when nothing waits or is on its way.
pub fn trigger_queue(node: &NodeName) -> String {
    format!("{TRIGGER_QUEUES}{node}")
}

/// Which node's queue a key under [`TRIGGER_QUEUES`] is.
pub fn parse_trigger_queue(key: &str) -> Option<NodeName> {
    NodeName::new(key.strip_prefix(TRIGGER_QUEUES)?).ok()
}

/// Written by the trigger service, once.
pub fn trigger_event(id: uuid::Uuid) -> String {
    format!("{TRIGGER_EVENTS}{id}")
}

/// What other services ask to be fired.
pub const TRIGGER_ANNOUNCED: &str = "triggers/announced/";

/// Written by the lock service with a change of holders; deleted when it was fired.
pub fn trigger_announced(id: bunraku_model::FiringId) -> String {
    format!("{TRIGGER_ANNOUNCED}{id}")
}
