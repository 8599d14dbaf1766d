//! Nodes: where they stand, their run queue, whether they may run.

use bunraku_model::NodeName;

use super::definition::endpoints;
use super::{Json, List, NoContent};
use crate::api::{
    ActivityReceipt, ActivityReport, AssignRequest, DisableRequest, NodeQueue, NodeSummary,
    QueueReport,
};

endpoints! {
    tag "nodes";

    /// List all nodes by name.
    ListNodes: Get "/v1/nodes" {
        access: Operator,
        needs: View on Each,
        reply: List<NodeSummary>,
    }

    /// Show one node.
    ShowNode: Get "/v1/nodes/{node}" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: Json<NodeSummary>,
    }

    /// Remove a node.
    ///
    /// Its certificates are revoked and its data is deleted.
    RemoveNode: Delete "/v1/nodes/{node}" {
        access: Operator,
        needs: Administer on Node,
        path: NodeName,
        reply: NoContent,
    }

    /// Disable runs on a node.
    DisableNode: Post "/v1/nodes/{node}/disable" {
        access: Operator,
        needs: Run on Node,
        path: NodeName,
        body: Json<DisableRequest>,
        reply: NoContent,
    }

    /// Enable runs on a node.
    EnableNode: Post "/v1/nodes/{node}/enable" {
        access: Operator,
        needs: Run on Node,
        path: NodeName,
        reply: NoContent,
    }

    /// Assign a node to an environment.
    AssignEnvironment: Put "/v1/nodes/{node}/environment" {
        access: Operator,
        needs: Administer on Each,
        path: NodeName,
        body: Json<AssignRequest>,
        reply: NoContent,
        details: ["environment"],
    }

    /// Report what the agent is doing.
    ReportActivity: Put "/v1/nodes/{node}/activity" {
        access: OwnNode,
        path: NodeName,
        body: Json<ActivityReport>,
        reply: Json<ActivityReceipt>,
        audited: Routine,
    }

    /// Report the run queue of the agent.
    ReportQueue: Put "/v1/nodes/{node}/queue" {
        access: OwnNode,
        path: NodeName,
        body: Json<QueueReport>,
        reply: NoContent,
        audited: Routine,
    }

    /// Show the current run and the run queue of a node.
    ShowNodeQueue: Get "/v1/nodes/{node}/queue" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: Json<NodeQueue>,
    }
}
