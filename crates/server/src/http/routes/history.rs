//! The place of history.

use bunraku_control::{HistoryMove, HistoryPlace};
use bunraku_wire::api::{HistoryStatus, HistoryTarget};
use bunraku_wire::endpoints::{MoveHistory, ShowHistory};

use crate::http::endpoint::{Call, HandlerResult, Routes};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowHistory, show).add(MoveHistory, begin_move)
}

async fn show(call: Call<ShowHistory>) -> HandlerResult<ShowHistory> {
    Ok(status_of(call.services.reports.history_state().await?))
}

async fn begin_move(call: Call<MoveHistory>) -> HandlerResult<MoveHistory> {
    let reports = &call.services.reports;
    let to = match call.body.to {
        HistoryTarget::Default => reports.default_history(),
        HistoryTarget::Postgresql => HistoryPlace::Postgresql,
    };
    Ok(status_of(reports.begin_history_move(to).await?))
}

/// Returns the state in the words of the API.
pub(crate) fn status_of(state: HistoryMove) -> HistoryStatus {
    let (outage, outage_seconds) = state.outage.unzip();
    HistoryStatus {
        place: state.active.as_str().to_owned(),
        moving_from: state.from.map(|from| from.as_str().to_owned()),
        moved: state.moved,
        outage,
        outage_seconds,
    }
}
