//! The review after data was restored from a backup.

use bunraku_wire::endpoints::{AcceptRestore, DeclareRestore, OfferRevocationLists, ShowRestore};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ShowRestore, show)
        .add(DeclareRestore, declare)
        .add(AcceptRestore, accept)
        .add(OfferRevocationLists, offer)
}

async fn show(call: Call<ShowRestore>) -> HandlerResult<ShowRestore> {
    Ok(call.services.certificates.restore_review().await?)
}

async fn declare(call: Call<DeclareRestore>) -> HandlerResult<DeclareRestore> {
    call.services.certificates.begin_epoch(call.by()?).await?;
    Ok(())
}

async fn accept(call: Call<AcceptRestore>) -> HandlerResult<AcceptRestore> {
    call.services
        .certificates
        .accept_restore(call.by()?)
        .await?;
    Ok(())
}

async fn offer(call: Call<OfferRevocationLists>) -> HandlerResult<OfferRevocationLists> {
    let caller = call.caller()?;
    call.services
        .certificates
        .accept_lists(&call.body.lists, &caller.name)
        .await?;
    Ok(())
}
