//! The one route that answers without a certificate.

use axum::Json;
use axum::extract::State;
use bunraku_wire::api::{JoinReply, JoinRequest, Problem};

use super::{Answer, Body, Services};
use crate::http::caller::From;

/// Ask for a node's certificate.
#[utoipa::path(post, path = "/v1/join", tag = "join", request_body = JoinRequest,
    responses((status = 200, body = JoinReply), (status = "default", body = Problem)))]
pub(crate) async fn join(
    State(services): State<Services>,
    From(address): From,
    Body(request): Body<JoinRequest>,
) -> Answer<JoinReply> {
    let waiting = services.certificates.join(&request, &address);
    // A request that waits for an operator must not hold up a shutdown.
    let reply = tokio::select! {
        reply = waiting => reply?,
        () = services.shutdown.cancelled() => {
            return Err(bunraku_control::ServiceError::Busy { message: "the server shuts down".to_owned() }.into());
        }
    };
    Ok(Json(reply))
}
