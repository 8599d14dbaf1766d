//! Triggers.

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use bunraku_model::TriggerName;
use bunraku_wire::api::Problem;
use bunraku_wire::api::triggers::{
    FireReply, FireTrigger, TriggerEvent, TriggerLimits, TriggerSummary,
};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, Body, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;
use bunraku_cues::once::Asker;

/// The trigger in the path.
pub(crate) struct PathTrigger(TriggerName);

impl<S: Send + Sync> FromRequestParts<S> for PathTrigger {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        super::path_parameter(parts, state, &["trigger"])
            .await
            .map(Self)
    }
}

/// Fire a trigger: start a run on each of its hosts.
#[utoipa::path(post, path = "/v1/triggers/{trigger}/fire", tag = "triggers", params(("trigger" = String, Path)),
    request_body = FireTrigger, responses((status = 200, body = FireReply), (status = "default", body = Problem)))]
pub(crate) async fn fire(
    State(services): State<Services>,
    caller: Caller,
    PathTrigger(trigger): PathTrigger,
    Body(request): Body<FireTrigger>,
) -> Answer<FireReply> {
    let asker = Asker {
        name: &caller.name,
        role: caller.role,
    };
    let fired = services.triggers.fire(&trigger, asker, &request);
    Ok(Json(fired.await?))
}

/// Triggers that have limits, or that are held back.
#[utoipa::path(get, path = "/v1/triggers", tag = "triggers",
    responses((status = 200, body = Vec<TriggerSummary>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<TriggerSummary>> {
    Ok(Json(services.triggers.list().await?))
}

/// One trigger.
#[utoipa::path(get, path = "/v1/triggers/{trigger}", tag = "triggers", params(("trigger" = String, Path)),
    responses((status = 200, body = TriggerSummary), (status = "default", body = Problem)))]
pub(crate) async fn show(
    State(services): State<Services>,
    PathTrigger(trigger): PathTrigger,
) -> Answer<TriggerSummary> {
    Ok(Json(services.triggers.show(&trigger).await?))
}

/// Limit a trigger.
#[utoipa::path(put, path = "/v1/triggers/{trigger}", tag = "triggers", params(("trigger" = String, Path)),
    request_body = TriggerLimits, responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn define(
    State(services): State<Services>,
    PathTrigger(trigger): PathTrigger,
    Body(limits): Body<TriggerLimits>,
) -> Result<StatusCode, Refusal> {
    services.triggers.define(&trigger, &limits).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take its limits away.
#[utoipa::path(delete, path = "/v1/triggers/{trigger}", tag = "triggers", params(("trigger" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn forget(
    State(services): State<Services>,
    PathTrigger(trigger): PathTrigger,
) -> Result<StatusCode, Refusal> {
    services.triggers.forget(&trigger).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which events.
#[derive(Deserialize, IntoParams)]
pub(crate) struct Which {
    /// Only those of this trigger.
    trigger: Option<String>,
    /// At most so many, newest first; 50 when nobody says.
    most: Option<usize>,
}

/// What happened to triggers.
#[utoipa::path(get, path = "/v1/trigger-events", tag = "triggers", params(Which),
    responses((status = 200, body = Vec<TriggerEvent>), (status = "default", body = Problem)))]
pub(crate) async fn history(
    State(services): State<Services>,
    Query(which): Query<Which>,
) -> Answer<Vec<TriggerEvent>> {
    let trigger = which.trigger.map(TriggerName::new).transpose();
    let trigger = trigger.map_err(|error| Refusal::invalid(error.to_string()))?;
    let most = which.most.unwrap_or(50);
    let events = services.triggers.history(trigger.as_ref(), most).await?;
    Ok(Json(events))
}
