//! Joining, which needs no certificate.

use bunraku_wire::endpoints::Join;

use crate::http::endpoint::{Call, HandlerResult, Routes};
use bunraku_control::ServiceError;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(Join, join)
}

async fn join(call: Call<Join>) -> HandlerResult<Join> {
    let waiting = call.services.certificates.join(&call.body, call.address());
    // A request that waits for an operator must not hold up a shutdown.
    let reply = tokio::select! {
        reply = waiting => reply?,
        () = call.services.shutdown.cancelled() => {
            return Err(ServiceError::Busy { message: "the server is shutting down".to_owned() }.into());
        }
    };
    Ok(reply)
}
