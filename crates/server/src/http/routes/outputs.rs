//! Outputs that pass from one node to another.

use bunraku_wire::endpoints::{ListInputs, ListOutputReads};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ListOutputReads, reads).add(ListInputs, inputs)
}

async fn reads(call: Call<ListOutputReads>) -> HandlerResult<ListOutputReads> {
    let mut reads = call.services.outputs.reads().await?;
    if let Some(permit) = call.permit() {
        let viewed = permit.viewed_nodes(reads.iter().map(|read| read.node.clone()).collect());
        if let Some(viewed) = viewed.await? {
            reads.retain(|read| viewed.contains(&read.node));
        }
    }
    Ok(reads)
}

async fn inputs(call: Call<ListInputs>) -> HandlerResult<ListInputs> {
    let inputs = call
        .services
        .outputs
        .inputs(&call.path, call.query.catalog, call.query.run);
    Ok(inputs.await?)
}
