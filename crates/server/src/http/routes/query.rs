//! Queries.

use bunraku_control::ServiceError;
use bunraku_model::Role;
use bunraku_wire::api::{QueryNodes, QueryReply};
use bunraku_wire::endpoints::{QueryNodeNames, RunQuery};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(RunQuery, query).add(QueryNodeNames, nodes)
}

async fn query(call: Call<RunQuery>) -> HandlerResult<RunQuery> {
    let (queries, text) = (&call.services.queries, &call.body.query);
    let answer = match call.caller()?.role {
        Role::Operator => match call.view().await? {
            None => queries.answer(text).await?,
            Some(view) => queries.answer_within(text, view).await?,
        },
        Role::Node => queries.answer_for_node(text).await?,
        Role::Server => {
            return Err(ServiceError::Forbidden {
                message: "servers may not query".to_owned(),
                hint: None,
            }
            .into());
        }
    };
    Ok(QueryReply {
        rows: answer.objects(),
        columns: answer.columns,
        warnings: answer.warnings,
    })
}

async fn nodes(call: Call<QueryNodeNames>) -> HandlerResult<QueryNodeNames> {
    let (queries, text) = (&call.services.queries, &call.body.query);
    let nodes = match call.view().await? {
        None => queries.nodes_matching(text).await?,
        Some(view) => queries.nodes_matching_within(text, view).await?,
    };
    Ok(QueryNodes { nodes })
}
