//! Finding nodes by a query, for services that accept hosts by query.
//!
//! Absent here: the index that answers (`query`).

use async_trait::async_trait;
use bunraku_model::NodeName;
use bunraku_query::{Query, QueryError};

use crate::ServiceError;

/// Finds the nodes that a query names.
#[async_trait]
pub trait FindNodes: Send + Sync + 'static {
    async fn nodes_matching(&self, query: &str) -> Result<Vec<NodeName>, ServiceError>;
}

/// Refuses queries, because there is no index.
#[derive(Clone, Copy, Debug)]
pub struct NoQueries;

#[async_trait]
impl FindNodes for NoQueries {
    async fn nodes_matching(&self, _: &str) -> Result<Vec<NodeName>, ServiceError> {
        Err(ServiceError::invalid(
            "this server has no index to query: pass nodes or a percentage",
        ))
    }
}

/// Checks a query for nodes without running it.
pub fn check_node_query(text: &str) -> Result<(), ServiceError> {
    let query = Query::parse_target(text);
    query
        .map(|_| ())
        .map_err(|error| query_refused(&error, text))
}

/// The error for a query that cannot be parsed, with the position.
pub fn query_refused(error: &QueryError, text: &str) -> ServiceError {
    ServiceError::Invalid {
        message: error.render(text),
        hint: error.hint.clone(),
    }
}
