//! Outputs that pass from one node to another.

use bunraku_model::{CatalogId, NodeName, RunId};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::List;
use super::definition::endpoints;
use crate::api::outputs::{NodeReads, OtherNodeOutput};

/// The catalog whose inputs a node needs.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct InputsQuery {
    /// The released catalog that is applied.
    #[param(value_type = String)]
    pub catalog: CatalogId,
    /// The ordered run that the node run belongs to.
    #[param(value_type = Option<String>)]
    pub run: Option<RunId>,
}

endpoints! {
    tag "outputs";

    /// List what the released catalog of each node reads from other nodes.
    ListOutputReads: Get "/v1/outputs/reads" {
        access: Operator,
        needs: View on Each,
        reply: List<NodeReads>,
    }

    /// List the outputs of other nodes that a catalog reads.
    ///
    /// A node gets only what its own released catalogs read.
    ListInputs: Get "/v1/nodes/{node}/inputs" {
        access: OwnNode,
        path: NodeName,
        query: InputsQuery,
        reply: List<OtherNodeOutput>,
    }
}
