//! The places of data.

use std::time::Duration;

use bunraku_control::error::chain;
use bunraku_wire::api::StoreStatus;
use bunraku_wire::endpoints::{MoveContent, ShowStore};

use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::routes::history::status_of;

/// The time that S3 gets to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowStore, show).add(MoveContent, move_content)
}

async fn show(call: Call<ShowStore>) -> HandlerResult<ShowStore> {
    let services = &call.services;
    let check = tokio::time::timeout(PATIENCE, services.placement.check_s3());
    let (checked, content) = tokio::join!(check, services.placement.status());
    let s3_problem = match checked {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(chain(&error)),
        Err(_) => Some(services.placement.s3_problem().unwrap_or_else(|| {
            let seconds = PATIENCE.as_secs();
            format!("S3 does not answer within {seconds} seconds")
        })),
    };
    Ok(StoreStatus {
        kind: services.identity.store.to_owned(),
        content: content?,
        s3_problem,
        history: status_of(services.reports.history_state().await?),
    })
}

async fn move_content(call: Call<MoveContent>) -> HandlerResult<MoveContent> {
    let by = call.by()?.to_string();
    call.services
        .placement
        .start_move(call.body.to, &by)
        .await?;
    Ok(())
}
