//! Reactors, and the hooks that tell them of events from outside.

use axum::Json;
use axum::extract::{Path, Request, State};
use bunraku_wire::api::Problem;
use bunraku_wire::api::reactors::{EventHookReply, ReactorStatus, ReactorVerdict, TestReactors};

use super::super::reply::Refusal;
use super::environments::header;
use super::{Answer, Body, Services, whole_body};
use bunraku_cues::reactors::Proof;

/// Every rule of every environment.
#[utoipa::path(get, path = "/v1/reactors", tag = "reactors",
    responses((status = 200, body = Vec<ReactorStatus>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<ReactorStatus>> {
    Ok(Json(services.reactors.list().await?))
}

/// What each rule would make of an event; nothing is fired.
#[utoipa::path(post, path = "/v1/reactors/test", tag = "reactors", request_body = TestReactors,
    responses((status = 200, body = Vec<ReactorVerdict>), (status = "default", body = Problem)))]
pub(crate) async fn test(
    State(services): State<Services>,
    Body(request): Body<TestReactors>,
) -> Answer<Vec<ReactorVerdict>> {
    Ok(Json(services.reactors.test(&request).await?))
}

/// Events from outside, signed in `X-Hub-Signature-256` or with a bearer token: the environment's secret.
#[utoipa::path(post, path = "/v1/hooks/{environment}/events/{hook}", tag = "reactors",
    params(("environment" = String, Path), ("hook" = String, Path)), request_body = Object,
    responses((status = 200, body = EventHookReply), (status = "default", body = Problem)))]
pub(crate) async fn hook(
    State(services): State<Services>,
    Path((environment, hook)): Path<(String, String)>,
    request: Request,
) -> Answer<EventHookReply> {
    let signature = header(request.headers(), "x-hub-signature-256");
    let authorization = header(request.headers(), "authorization");
    let body = whole_body(request, &()).await?;
    // Who does not know the secret learns nothing, not even which names there are.
    let unproven = || {
        Refusal::unauthenticated(
            "the call does not prove that it knows this environment's secret",
            "send it as `Authorization: Bearer …`, or sign the body in `X-Hub-Signature-256`",
        )
    };
    let environment = environment.parse().map_err(|_| unproven())?;
    let proof = Proof {
        signature: signature.as_deref(),
        authorization: authorization.as_deref(),
    };
    let delivered = services
        .reactors
        .deliver(&environment, &hook, &proof, &body);
    delivered.await?.map(Json).ok_or_else(unproven)
}
