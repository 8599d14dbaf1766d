//! The servers of a cluster.

use bunraku_model::NodeName;

use super::definition::endpoints;
use super::{Json, NoContent};
use crate::api::cluster::{
    ClusterInvitation, ClusterInviteRequest, ClusterJoinRequest, ClusterSshJoinRequest,
    ClusterSshWelcome, ClusterStatus, ClusterWelcome, DrainRequest, ExpectServerRequest,
    ServerList,
};

endpoints! {
    tag "cluster";

    /// Show the cluster as this server sees it.
    ShowCluster: Get "/v1/cluster" {
        access: Operator,
        needs: View on Everything,
        reply: Json<ClusterStatus>,
    }

    /// List the servers that nodes and operators can use.
    ListServers: Get "/v1/servers" {
        access: AnyRole,
        reply: Json<ServerList>,
    }

    /// Create a token with which one server can join.
    ///
    /// Only this reply shows the token.
    InviteServer: Post "/v1/cluster/invitations" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<ClusterInviteRequest>,
        reply: Json<ClusterInvitation>,
        details: ["ttl_seconds"],
    }

    /// Join the cluster with a token.
    ///
    /// The token in the body authenticates the caller.
    JoinCluster: Post "/v1/cluster/join" {
        access: Anonymous,
        body: Json<ClusterJoinRequest>,
        reply: Json<ClusterWelcome>,
        audited: ByService,
    }

    /// Allow a server to join over SSH, once.
    ExpectServer: Post "/v1/cluster/expected/{name}" {
        access: Operator,
        needs: Administer on Everything,
        path: NodeName,
        body: Json<ExpectServerRequest>,
        reply: NoContent,
        object: ("server", "name"),
        details: ["host", "ttl_seconds"],
    }

    /// No longer allow a server to join over SSH.
    ForgetExpectedServer: Delete "/v1/cluster/expected/{name}" {
        access: Operator,
        needs: Administer on Everything,
        path: NodeName,
        reply: NoContent,
        object: ("server", "name"),
    }

    /// Join the cluster and be verified over SSH.
    ///
    /// An operator has to name the server and its address beforehand.
    /// This server connects to the new one over SSH and writes the secrets there; the reply has
    /// none.
    JoinClusterOverSsh: Post "/v1/cluster/join-over-ssh" {
        access: Anonymous,
        body: Json<ClusterSshJoinRequest>,
        reply: Json<ClusterSshWelcome>,
        audited: ByService,
    }

    /// Remove a server from the cluster.
    RemoveServer: Delete "/v1/cluster/members/{name}" {
        access: Operator,
        needs: Administer on Everything,
        path: NodeName,
        reply: NoContent,
        object: ("server", "name"),
    }

    /// Start or stop draining a server.
    DrainServer: Post "/v1/cluster/members/{name}/drain" {
        access: Operator,
        needs: Administer on Everything,
        path: NodeName,
        body: Json<DrainRequest>,
        reply: NoContent,
        object: ("server", "name"),
        details: ["draining"],
    }
}
