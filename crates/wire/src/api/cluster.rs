//! The cluster: its members and datastores.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::SpaceStatus;

/// The keys of cluster data. Each key has one writer.
pub mod keys {
    use bunraku_model::NodeName;

    /// All data about the cluster itself.
    pub const ALL: &str = "cluster/";
    /// Written once, by the first server.
    pub const SETTINGS: &str = "cluster/settings";
    /// Servers that have joined: written when they join, then by operators.
    pub const MEMBERS: &str = "cluster/members/";
    /// What each server should run: written by the elected server.
    pub const ORDERS: &str = "cluster/orders/";
    /// The change in progress: written by the elected server.
    pub const PLAN: &str = "cluster/plan";
    /// etcd's members: written by the elected server.
    pub const DATASTORES: &str = "cluster/datastores";
    /// The elected server, bound to its lease.
    pub const LEADER: &str = "cluster/leader";
    /// Cluster events, newest last: written by the elected server.
    pub const EVENTS: &str = "cluster/events";
    /// The audit record of the step that is under way: written by the elected server before it
    /// changes etcd's members, deleted with the outcome.
    pub const STEP: &str = "cluster/step";
    /// Permanently removed servers: written by operators, deleted when a server with that name
    /// joins again.
    pub const REMOVED: &str = "cluster/removed/";
    /// The etcd version that each server runs and has installed: written by that server.
    pub const PROGRAMS: &str = "cluster/programs/";
    /// Tokens with which a server can join, by their hash.
    pub const TOKENS: &str = "cluster/join-tokens/";
    /// Servers that may join over SSH: written by operators, deleted when the server joins.
    pub const EXPECTED: &str = "cluster/expected/";

    pub fn member(name: &NodeName) -> String {
        format!("{MEMBERS}{name}")
    }

    pub fn order(name: &NodeName) -> String {
        format!("{ORDERS}{name}")
    }

    pub fn program(name: &NodeName) -> String {
        format!("{PROGRAMS}{name}")
    }

    pub fn removed(name: &NodeName) -> String {
        format!("{REMOVED}{name}")
    }

    pub fn expected(name: &NodeName) -> String {
        format!("{EXPECTED}{name}")
    }

    pub fn token(hash: &str) -> String {
        format!("{TOKENS}{hash}")
    }

    /// A record that waits for its place in the audit log. Servers link it to the chain, wherever
    /// it comes from.
    pub fn audit_record(id: uuid::Uuid) -> String {
        format!("audit/inbox/{id}")
    }
}

/// A server that an operator expects to join over SSH.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExpectServerRequest {
    /// The address or host name at which SSH reaches it.
    pub host: String,
    pub ttl_seconds: u64,
}

/// Settings of the whole cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterSettings {
    pub cluster: String,
    /// The number of datastores, if there are enough servers.
    pub datastores: usize,
}

/// A server that has joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberRecord {
    #[schema(value_type = String)]
    pub name: NodeName,
    /// `HOST:PORT` for other members.
    pub member_address: String,
    /// `HOST:PORT` for nodes and operators.
    pub api_address: String,
    /// The URL of its datastore for members.
    pub client_url: String,
    /// The URL of its datastore for other datastores.
    pub peer_url: String,
    /// `true` if it may run a datastore.
    pub eligible: bool,
    /// `true` if its datastore should move to another server.
    #[serde(default)]
    pub draining: bool,
    #[schema(value_type = String, format = DateTime)]
    pub joined: Timestamp,
}

/// An entry of etcd's member list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DatastoreRecord {
    pub id: u64,
    #[schema(value_type = Option<String>)]
    pub name: Option<NodeName>,
    pub client_url: String,
    pub peer_url: String,
    /// `true` if it is a learner: it copies the data and has no vote yet.
    pub learner: bool,
    pub healthy: bool,
}

/// A change of the datastores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterEvent {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The server that made the change.
    #[schema(value_type = String)]
    pub by: NodeName,
    pub what: String,
}

/// A permanently removed server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RemovedMember {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The operator who removed it.
    pub by: String,
}

/// A server asks to join. The token proves an operator's consent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterJoinRequest {
    pub token: String,
    #[serde(flatten)]
    pub server: JoiningServer,
}

/// A server asks to join and is verified over SSH. The reply does not contain the credentials:
/// another server writes them to the machine over SSH.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSshJoinRequest {
    /// The name of its directory below [`SSH_PLACE`]: 64 hexadecimal digits.
    pub place: String,
    /// The fingerprint of its certificate request, which is also in its directory.
    pub key: String,
    #[serde(flatten)]
    pub server: JoiningServer,
}

/// The parent of the directories in which joining servers wait to be reached over SSH. Each
/// directory contains the file `key` and, once the server was accepted, `welcome`.
pub const SSH_PLACE: &str = "/run/bunraku-join";

/// The answer to a server that was verified over SSH.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterSshWelcome {
    #[schema(value_type = String)]
    pub verified_by: NodeName,
}

/// A joining server and its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JoiningServer {
    #[schema(value_type = String)]
    pub name: NodeName,
    pub member_address: String,
    pub api_address: String,
    pub client_url: String,
    pub peer_url: String,
    pub eligible: bool,
}

/// The files of an authority, including its signing key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityFiles {
    pub certificates: String,
    pub key: String,
}

impl std::fmt::Debug for AuthorityFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityFiles").finish_non_exhaustive()
    }
}

/// Everything that a server needs to become a member. As secret as the authorities that it
/// contains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterWelcome {
    pub cluster: String,
    pub epoch: u64,
    /// The authority that signs nodes, operators and servers. Absent if it is a Puppet authority,
    /// which Bunraku does not copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<AuthorityFiles>,
    /// The authority for connections between members.
    pub member_authority: AuthorityFiles,
    pub members: Vec<MemberRecord>,
    /// The endpoints of the store.
    pub endpoints: Vec<String>,
}

/// A token with which one server can join.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterInvitation {
    pub token: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    pub ca_fingerprint: String,
}

/// A request for an invitation, with its lifetime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterInviteRequest {
    pub ttl_seconds: u64,
}

/// A request to drain a server, or to stop draining it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainRequest {
    pub draining: bool,
}

/// The state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    Alive,
    Suspect,
    Dead,
    Left,
}

/// One member's view of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    #[schema(value_type = String)]
    pub name: NodeName,
    pub state: MemberState,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String)]
    pub said_by: NodeName,
}

/// One member's view of the cluster. It differs between servers by design.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    #[schema(value_type = String)]
    pub seen_by: NodeName,
    pub epoch: u64,
    /// This member's own health: 0 if it runs without delays.
    pub health_score: u32,
    pub members: Vec<MemberView>,
    /// The reason why the elected server makes no change, according to its last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// The number of voting datastores, according to the last answer of the store.
    #[serde(default)]
    pub datastores: usize,
    /// The number of voting datastores that answer.
    #[serde(default)]
    pub datastores_healthy: usize,
    /// The number of changes to the datastores.
    #[serde(default)]
    pub changes: u64,
}

/// The cluster as seen by one of its servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    pub settings: ClusterSettings,
    pub sight: ClusterView,
    /// The server that changes the datastores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub leader: Option<NodeName>,
    pub members: Vec<MemberRecord>,
    pub datastores: Vec<DatastoreRecord>,
    /// The change in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub change: Option<serde_json::Value>,
    pub events: Vec<ClusterEvent>,
    /// The number of seconds without an answer from a majority of the datastores. If set,
    /// everything except `sight` may be stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_majority_seconds: Option<u64>,
    /// The space that the datastores use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceStatus>,
}

/// The servers that nodes and operators can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerList {
    /// `HOST:PORT` of each, in no particular order.
    pub servers: Vec<String>,
}
