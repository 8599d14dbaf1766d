//! Queries over nodes, facts, catalogs and reports.

use super::Json;
use super::definition::endpoints;
use crate::api::{QueryNodes, QueryReply, QueryRequest};

endpoints! {
    tag "queries";

    /// Query nodes, facts, resources, classes, reports and events, as far as the caller may see them.
    RunQuery: Post "/v1/query" {
        access: NodeOrOperator,
        needs: View on Each,
        body: Json<QueryRequest>,
        reply: Json<QueryReply>,
        old_data: Allowed,
        audited: No,
    }

    /// List the nodes of all rows that a query finds.
    QueryNodeNames: Post "/v1/query/nodes" {
        access: Operator,
        needs: View on Each,
        body: Json<QueryRequest>,
        reply: Json<QueryNodes>,
        audited: No,
    }
}
