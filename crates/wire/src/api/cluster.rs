//! The servers among themselves: who is a member, who keeps the data.

use bunraku_model::NodeName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the store has what the members agreed on. One writer each.
pub mod keys {
    use bunraku_model::NodeName;

    /// Everything about the cluster itself.
    pub const ALL: &str = "cluster/";
    /// Written once, by the first server.
    pub const SETTINGS: &str = "cluster/settings";
    /// Servers that have joined: written when they join, then by operators.
    pub const MEMBERS: &str = "cluster/members/";
    /// What each server was told to run: written by the elected server.
    pub const ORDERS: &str = "cluster/orders/";
    /// The change under way: written by the elected server.
    pub const PLAN: &str = "cluster/plan";
    /// etcd's members: written by the elected server.
    pub const DATASTORES: &str = "cluster/datastores";
    /// The elected server, bound to its lease.
    pub const LEADER: &str = "cluster/leader";
    /// What happened, the newest last: written by the elected server.
    pub const EVENTS: &str = "cluster/events";
    /// Servers that were removed for good: written by operators, deleted when
    /// one of that name joins anew.
    pub const REMOVED: &str = "cluster/removed/";
    /// Which etcd runs on each server, and which is installed: written by that server.
    pub const PROGRAMS: &str = "cluster/programs/";
    /// Tokens that let a server in, by their hash.
    pub const TOKENS: &str = "cluster/join-tokens/";

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

    pub fn token(hash: &str) -> String {
        format!("{TOKENS}{hash}")
    }
}

/// What holds for the whole cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterSettings {
    pub cluster: String,
    /// How many servers keep the data, when there are enough of them.
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
    /// Of its datastore, for members.
    pub client_url: String,
    /// Of its datastore, for other datastores.
    pub peer_url: String,
    /// May keep data.
    pub eligible: bool,
    /// Its role is to move away.
    #[serde(default)]
    pub draining: bool,
    #[schema(value_type = String, format = DateTime)]
    pub joined: Timestamp,
}

/// A member on etcd's list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DatastoreRecord {
    pub id: u64,
    #[schema(value_type = Option<String>)]
    pub name: Option<NodeName>,
    pub client_url: String,
    pub peer_url: String,
    /// Copies, and has no vote yet.
    pub learner: bool,
    pub healthy: bool,
}

/// Something that happened to the datastores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterEvent {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The server that did it.
    #[schema(value_type = String)]
    pub by: NodeName,
    pub what: String,
}

/// A server that was removed for good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RemovedMember {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The operator.
    pub by: String,
}

/// Let a server in. The token says that an operator wants it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterJoinRequest {
    pub token: String,
    #[serde(flatten)]
    pub server: JoiningServer,
}

/// Let a server in that is known over SSH. What it needs to be a member is not
/// in the reply: it is put into its place over SSH.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSshJoinRequest {
    /// The directory below [`SSH_PLACE`] in which it waits: 64 hexadecimal digits.
    pub place: String,
    /// The fingerprint of its certificate request; the same is in its place.
    pub key: String,
    #[serde(flatten)]
    pub server: JoiningServer,
}

/// Where a server waits for another one to reach it over SSH: a directory of
/// its own, with the file `key` in it and, when it was let in, `welcome`.
pub const SSH_PLACE: &str = "/run/bunraku-join";

/// Who let it in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterSshWelcome {
    #[schema(value_type = String)]
    pub verified_by: NodeName,
}

/// A server that wants to be a member, and where it is reached.
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

/// An authority: whoever has this can sign.
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

/// All that a server needs to be a member. It is as secret as the authorities in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterWelcome {
    pub cluster: String,
    pub epoch: u64,
    /// Who signs nodes, operators and servers. Absent where that is a Puppet
    /// authority, which is not ours to give away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<AuthorityFiles>,
    /// Who signs members for each other.
    pub member_authority: AuthorityFiles,
    pub members: Vec<MemberRecord>,
    /// Where the store is.
    pub endpoints: Vec<String>,
}

/// A token that lets one server in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterInvitation {
    pub token: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    pub ca_fingerprint: String,
}

/// How long an invitation is good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterInviteRequest {
    pub ttl_seconds: u64,
}

/// Move a server's role away, or stop doing so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainRequest {
    pub draining: bool,
}

/// Whether a server is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    Alive,
    Suspect,
    Dead,
    Left,
}

/// What one member knows of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberSeen {
    #[schema(value_type = String)]
    pub name: NodeName,
    pub state: MemberState,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    #[schema(value_type = String)]
    pub said_by: NodeName,
}

/// What one member sees: the answer differs from server to server, on purpose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterSight {
    #[schema(value_type = String)]
    pub seen_by: NodeName,
    pub epoch: u64,
    /// 0 when this member itself gets all the time that it needs.
    pub health_score: u32,
    pub members: Vec<MemberSeen>,
    /// Why nothing is being changed, as the elected server last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Servers that keep data and have a vote, as the store last said.
    #[serde(default)]
    pub datastores: usize,
    /// Those of them that answer.
    #[serde(default)]
    pub datastores_healthy: usize,
    /// How often the datastores were changed.
    #[serde(default)]
    pub changes: u64,
}

/// The cluster, as one of its servers sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    pub settings: ClusterSettings,
    pub sight: ClusterSight,
    /// The server that changes the datastores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub leader: Option<NodeName>,
    pub members: Vec<MemberRecord>,
    pub datastores: Vec<DatastoreRecord>,
    /// The change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub change: Option<serde_json::Value>,
    pub events: Vec<ClusterEvent>,
    /// For how long no majority of the datastores has answered: then all of
    /// this but `sight` is old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_majority_seconds: Option<u64>,
}

/// Where else nodes and operators can go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerList {
    /// `HOST:PORT`, in no order.
    pub servers: Vec<String>,
}
