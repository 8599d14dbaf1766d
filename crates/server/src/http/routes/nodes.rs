//! Nodes.

use bunraku_wire::api::{NodeSummary, RevokeRequest};
use bunraku_wire::endpoints::{
    DisableNode, EnableNode, ListNodes, RemoveNode, ReportActivity, ReportQueue, ShowNode,
    ShowNodeQueue,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};
use bunraku_control::ServiceError;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListNodes, list)
        .add(ShowNode, show)
        .add(RemoveNode, remove)
        .add(DisableNode, disable)
        .add(EnableNode, enable)
        .add(ReportActivity, report_activity)
        .add(ReportQueue, report_queue)
        .add(ShowNodeQueue, queue)
}

async fn list(call: Call<ListNodes>) -> HandlerResult<ListNodes> {
    let view = call.view().await?;
    let is_wanted = |node: &NodeSummary| {
        let is_visible = view
            .as_ref()
            .is_none_or(|view| view.covers_node(&node.name, Some(&node.environment)));
        is_visible && call.query.matches(node)
    };
    let mut page = call.services.nodes.page(&call.page, is_wanted).await?;
    if view.is_none() {
        page.total = call.services.metrics.fleet.nodes();
    }
    Ok(page)
}

async fn show(call: Call<ShowNode>) -> HandlerResult<ShowNode> {
    Ok(call.services.nodes.show(&call.path).await?)
}

async fn remove(call: Call<RemoveNode>) -> HandlerResult<RemoveNode> {
    if !call.services.nodes.exists(&call.path).await? {
        return Err(ServiceError::no_such_node(&call.path).into());
    }
    let revoke = RevokeRequest {
        reason: "the node was removed".to_owned(),
        serial: None,
    };
    match call
        .services
        .certificates
        .revoke(&call.path, &revoke, call.by()?)
        .await
    {
        Ok(_) | Err(ServiceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    call.services.hub.disconnect(&call.path);
    call.services.reports.forget(&call.path).await?;
    // A submission in progress may restore the facts until the record is deleted.
    loop {
        call.services.facts.forget(&call.path).await?;
        if call.services.nodes.remove(&call.path).await? {
            break;
        }
    }
    // After the record, because nothing is compiled for a node without one.
    call.services.compiles.forget(&call.path).await?;
    Ok(())
}

async fn disable(call: Call<DisableNode>) -> HandlerResult<DisableNode> {
    call.services
        .nodes
        .disable(&call.path, &call.body.reason, call.by()?)
        .await?;
    Ok(())
}

async fn enable(call: Call<EnableNode>) -> HandlerResult<EnableNode> {
    call.services.nodes.enable(&call.path, call.by()?).await?;
    Ok(())
}

async fn report_activity(call: Call<ReportActivity>) -> HandlerResult<ReportActivity> {
    let receipt = call
        .services
        .nodes
        .report_activity(&call.path, &call.body.activity)
        .await?;
    Ok(receipt)
}

async fn report_queue(call: Call<ReportQueue>) -> HandlerResult<ReportQueue> {
    call.services
        .nodes
        .report_queue(&call.path, &call.body)
        .await?;
    Ok(())
}

async fn queue(call: Call<ShowNodeQueue>) -> HandlerResult<ShowNodeQueue> {
    Ok(call.services.nodes.queue(&call.path).await?)
}
