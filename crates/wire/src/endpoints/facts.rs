//! Facts: submitted by nodes, shown and compared.

use bunraku_model::{FactSet, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use uuid::Uuid;

use super::definition::endpoints;
use super::{Json, JsonObject, List};
use crate::api::{FactSetEntry, FactsDifference, FactsReceipt, FactsReply};

/// The position of a submission among those of one agent process.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubmissionQuery {
    /// A random id of the agent process.
    #[param(value_type = Option<String>)]
    pub session: Option<Uuid>,
    /// Counts up within the session.
    pub number: Option<u64>,
    /// Whether the submission before this one was acknowledged.
    #[serde(default)]
    pub settled: bool,
}

/// Two fact sets, each by its id or the beginning of its id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DifferenceQuery {
    /// The older fact set. Default: the one before `to`.
    pub from: Option<String>,
    /// The newer fact set. Default: the newest one.
    pub to: Option<String>,
}

endpoints! {
    tag "facts";

    /// Submit the facts of a node.
    ///
    /// A reply means that the facts are durable.
    SubmitFacts: Put "/v1/nodes/{node}/facts" {
        access: OwnNode,
        path: NodeName,
        query: SubmissionQuery,
        body: JsonObject<FactSet>,
        reply: Json<FactsReceipt>,
        body_limit: Large,
        audited: Routine,
    }

    /// Show the newest facts of a node.
    ShowFacts: Get "/v1/nodes/{node}/facts" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: Json<FactsReply>,
    }

    /// List the fact sets of a node that are still stored, newest first.
    ListFactSets: Get "/v1/nodes/{node}/facts/history" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: List<FactSetEntry>,
    }

    /// Compare two fact sets of a node.
    CompareFacts: Get "/v1/nodes/{node}/facts/difference" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        query: DifferenceQuery,
        reply: Json<FactsDifference>,
    }
}
