//! Catalogs, content, and the target of a node.

use bunraku_model::{CatalogId, ContentId, EnvironmentName, NodeName};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{BinaryContent, CatalogDocument, Conditional, Json, Paged};
use crate::api::{
    CatalogDiffReply, CatalogSummary, FleetDiff, FleetDiffRequest, NodePlugins, PuppetComparison,
    PuppetComparisonRequest, Target,
};

/// Which catalogs to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CatalogsQuery {
    /// Only nodes of this environment.
    #[param(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
    /// Only this node.
    #[param(value_type = Option<String>)]
    pub node: Option<NodeName>,
}

/// The catalog to compare with.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CatalogDiffQuery {
    /// The older catalog.
    #[param(value_type = String)]
    pub before: CatalogId,
}

endpoints! {
    tag "catalogs";

    /// List the catalogs of nodes and whether they are released.
    ListCatalogs: Get "/v1/catalogs" {
        access: Operator,
        needs: View on Each,
        query: CatalogsQuery,
        reply: Paged<CatalogSummary>,
    }

    /// Compile a commit without deploying it, and show what it would change.
    ProposeCatalogs: Post "/v1/catalogs/proposed" {
        access: Operator,
        needs: Deploy on Each,
        body: Json<FleetDiffRequest>,
        reply: Json<FleetDiff>,
        old_data: Allowed,
        audited: No,
    }

    /// Compile a node with plain Puppet, and compare the catalog with Bunraku's.
    CompareWithPuppet: Post "/v1/catalogs/compare-puppet" {
        access: Operator,
        needs: Deploy on Each,
        body: Json<PuppetComparisonRequest>,
        reply: Json<PuppetComparison>,
        audited: No,
    }

    /// Return a catalog.
    ShowCatalog: Get "/v1/catalogs/{id}" {
        access: Operator,
        needs: View on Each,
        path: CatalogId,
        reply: CatalogDocument,
    }

    /// Compare two catalogs.
    CompareCatalogs: Get "/v1/catalogs/{id}/diff" {
        access: Operator,
        needs: View on Each,
        path: CatalogId,
        query: CatalogDiffQuery,
        reply: Json<CatalogDiffReply>,
    }

    /// Return a catalog of a node.
    ///
    /// A node can read its target and the catalog that was its target before. A catalog that is
    /// held does not exist for the node.
    ShowNodeCatalog: Get "/v1/nodes/{node}/catalogs/{id}" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: (NodeName, CatalogId),
        reply: CatalogDocument,
    }

    /// Show the released catalog that a node should apply.
    ShowTarget: Get "/v1/nodes/{node}/target" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: Conditional<Target>,
    }

    /// Show the plugins of the Puppet modules in a node's environment, at the deployed commit.
    ///
    /// A node fetches them before it collects facts.
    ShowNodePlugins: Get "/v1/nodes/{node}/plugins" {
        access: OwnNodeOrOperator,
        needs: View on Node,
        path: NodeName,
        reply: Json<NodePlugins>,
    }

    /// Return a file by its content id, whole or in part.
    ///
    /// A node can read the files that its released catalogs name, and its environment's plugins. The body is verified while it
    /// is sent; if it does not match its id, the connection is closed.
    ShowContent: Get "/v1/content/{id}" {
        access: NodeOrOperator,
        needs: ViewSecrets on Everything,
        path: ContentId,
        reply: BinaryContent,
    }
}
