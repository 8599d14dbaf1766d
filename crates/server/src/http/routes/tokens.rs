//! Join tokens.

use axum::Json;
use axum::extract::{Path, State};
use bunraku_wire::api::{NewToken, Problem, TokenEntry, TokenRequest};
use http::StatusCode;

use super::{Answer, Body, Services};
use crate::http::caller::Caller;
use crate::http::reply::Refusal;

/// Tokens that can still be used.
#[utoipa::path(get, path = "/v1/tokens", tag = "join",
    responses((status = 200, body = Vec<TokenEntry>), (status = "default", body = Problem)))]
pub(crate) async fn list(State(services): State<Services>) -> Answer<Vec<TokenEntry>> {
    Ok(Json(services.certificates.tokens().await?))
}

/// Make a one-time token. It is shown only in this reply.
#[utoipa::path(post, path = "/v1/tokens", tag = "join", request_body = TokenRequest,
    responses((status = 200, body = NewToken), (status = "default", body = Problem)))]
pub(crate) async fn create(
    State(services): State<Services>,
    caller: Caller,
    Body(request): Body<TokenRequest>,
) -> Answer<NewToken> {
    Ok(Json(
        services
            .certificates
            .create_token(&request, caller.name.as_str())
            .await?,
    ))
}

/// Take a token back.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "join", params(("id" = String, Path)),
    responses((status = 204), (status = "default", body = Problem)))]
pub(crate) async fn revoke(
    State(services): State<Services>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    services.certificates.revoke_token(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
