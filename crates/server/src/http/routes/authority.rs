//! The CA, and its replacement by another one.

use bunraku_wire::endpoints::{
    AbortRotation, FinishRotation, ShowAuthority, ShowRotation, StartRotation,
};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ShowAuthority, show)
        .add(ShowRotation, rotation)
        .add(StartRotation, start)
        .add(FinishRotation, finish)
        .add(AbortRotation, abort)
}

async fn show(call: Call<ShowAuthority>) -> HandlerResult<ShowAuthority> {
    let caller = call.caller()?;
    Ok(call
        .services
        .certificates
        .authority_for(&caller.certificate)
        .await?)
}

async fn rotation(call: Call<ShowRotation>) -> HandlerResult<ShowRotation> {
    Ok(call.services.certificates.rotation_status().await?)
}

async fn start(call: Call<StartRotation>) -> HandlerResult<StartRotation> {
    Ok(call
        .services
        .certificates
        .rotate(&call.body, call.by()?)
        .await?)
}

async fn finish(call: Call<FinishRotation>) -> HandlerResult<FinishRotation> {
    Ok(call
        .services
        .certificates
        .finish_rotation(call.body.force)
        .await?)
}

async fn abort(call: Call<AbortRotation>) -> HandlerResult<AbortRotation> {
    call.services.certificates.abort_rotation().await?;
    Ok(())
}
