//! Facts.

use bunraku_wire::api::SubmissionOrder;
use bunraku_wire::endpoints::{CompareFacts, ListFactSets, ShowFacts, SubmitFacts};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(SubmitFacts, submit)
        .add(ShowFacts, show)
        .add(ListFactSets, history)
        .add(CompareFacts, difference)
}

async fn submit(call: Call<SubmitFacts>) -> HandlerResult<SubmitFacts> {
    call.services.certificates.admit(&call.path).await?;
    let settled = call.query.settled;
    let order = call.query.session.zip(call.query.number);
    let order = order.map(|(session, number)| SubmissionOrder {
        session,
        number,
        settled,
    });
    let receipt = call
        .services
        .facts
        .submit(&call.path, &call.body, order)
        .await?;
    call.services.metrics.facts_submitted(receipt.changed);
    Ok(receipt)
}

async fn show(call: Call<ShowFacts>) -> HandlerResult<ShowFacts> {
    Ok(call.services.facts.show(&call.path).await?)
}

async fn history(call: Call<ListFactSets>) -> HandlerResult<ListFactSets> {
    Ok(call.services.facts.history(&call.path).await?)
}

async fn difference(call: Call<CompareFacts>) -> HandlerResult<CompareFacts> {
    let (from, to) = (call.query.from.as_deref(), call.query.to.as_deref());
    Ok(call.services.facts.difference(&call.path, from, to).await?)
}
