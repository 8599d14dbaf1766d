//! Nodes: where they stand, their run queue, whether they may run.

use bunraku_model::{EnvironmentName, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, NoContent, Paged};
use crate::api::{
    ActivityReceipt, ActivityReport, AssignRequest, DisableRequest, NodeQueue, NodeSummary,
    QueueReport,
};

/// Which nodes to list. All conditions must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NodesQuery {
    /// Only nodes whose last run failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Only nodes whose last run found drift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drifted: bool,
    /// Only nodes with one of these statuses, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only nodes of this environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
}

impl NodesQuery {
    /// Returns whether a node meets all conditions.
    pub fn matches(&self, node: &NodeSummary) -> bool {
        (!self.failed || node.has_failed())
            && (!self.drifted || node.has_drifted())
            && (self.status.as_ref())
                .is_none_or(|words| words.split(',').any(|word| word == node.word.as_str()))
            && (self.environment.as_ref()).is_none_or(|wanted| *wanted == node.environment)
    }
}

endpoints! {
    tag "nodes";

    /// List all nodes by name.
    ListNodes: Get "/v1/nodes" {
        access: Operator,
        needs: View on Each,
        query: NodesQuery,
        reply: Paged<NodeSummary>,
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
