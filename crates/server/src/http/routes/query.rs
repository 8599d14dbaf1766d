//! Queries.

use bunraku_wire::api::{QueryNodes, QueryReply};
use bunraku_wire::endpoints::{QueryNodeNames, RunQuery};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(RunQuery, query).add(QueryNodeNames, nodes)
}

async fn query(call: Call<RunQuery>) -> HandlerResult<RunQuery> {
    let answer = call.services.queries.answer(&call.body.query).await?;
    Ok(QueryReply {
        rows: answer.objects(),
        columns: answer.columns,
        warnings: answer.warnings,
    })
}

async fn nodes(call: Call<QueryNodeNames>) -> HandlerResult<QueryNodeNames> {
    let nodes = call
        .services
        .queries
        .nodes_matching(&call.body.query)
        .await?;
    Ok(QueryNodes { nodes })
}
