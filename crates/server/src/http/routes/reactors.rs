//! Reactors, and the webhook that reports outside events to them.

use bunraku_wire::endpoints::{ListReactors, ReceiveEvents, TestReactors};

use super::environments::header;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::reply::ErrorReply;
use bunraku_cues::reactors::Proof;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListReactors, list)
        .add(TestReactors, test)
        .add(ReceiveEvents, hook)
}

async fn list(call: Call<ListReactors>) -> HandlerResult<ListReactors> {
    let mut reactors = call.services.reactors.list().await?;
    if let Some(view) = call.view().await? {
        reactors.retain(|reactor| view.covers_environment(&reactor.environment));
    }
    Ok(reactors)
}

async fn test(call: Call<TestReactors>) -> HandlerResult<TestReactors> {
    Ok(call.services.reactors.test(&call.body).await?)
}

async fn hook(call: Call<ReceiveEvents>) -> HandlerResult<ReceiveEvents> {
    let (environment, hook) = &call.path;
    let signature = header(&call.headers, "x-hub-signature-256");
    let authorization = header(&call.headers, "authorization");
    // A caller without the secret learns nothing, not even which names exist.
    let unproven = || {
        ErrorReply::unauthenticated(
            "the call is not authenticated with this environment's secret",
            "send it as `Authorization: Bearer …`, or sign the body in `X-Hub-Signature-256`",
        )
    };
    let environment = environment.parse().map_err(|_| unproven())?;
    let proof = Proof {
        signature: signature.as_deref(),
        authorization: authorization.as_deref(),
    };
    let delivered = call
        .services
        .reactors
        .deliver(&environment, hook, &proof, &call.body);
    delivered.await?.ok_or_else(unproven)
}
