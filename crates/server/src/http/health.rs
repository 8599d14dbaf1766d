//! Health, readiness and metrics.

use std::time::Duration;

use bunraku_wire::endpoints::{CheckHealth, CheckReadiness, ShowMetrics};

use super::endpoint::{Call, HandlerResult, Routes};
use super::reply::ErrorReply;
use bunraku_control::keys;
use bunraku_store::StoreSpace;

/// Time limit for the store's answer. A slower store counts as not ready.
const PATIENCE: Duration = Duration::from_secs(3);

/// Adds the handlers of this module.
pub(super) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(CheckHealth, healthz)
        .add(CheckReadiness, readyz)
        .add(ShowMetrics, metrics)
}

async fn healthz(_: Call<CheckHealth>) -> HandlerResult<CheckHealth> {
    Ok("ok\n".to_owned())
}

async fn readyz(call: Call<CheckReadiness>) -> HandlerResult<CheckReadiness> {
    let services = &call.services;
    if services.shutdown.is_cancelled() {
        return Err(ErrorReply::unavailable("shutting down"));
    }
    let key = keys::server(services.identity.id);
    match tokio::time::timeout(PATIENCE, services.store.get(&key)).await {
        Ok(Ok(Some(_))) => {
            let mut text = ready(services.store.space())?;
            if let Ok(state) = services.reports.history_state().await
                && let Some((why, seconds)) = state.outage
            {
                text.push_str(&format!(
                    "warning: history is unavailable for {seconds} s ({why}): agents keep their reports and send them later\n"
                ));
            }
            Ok(text)
        }
        Ok(Ok(None)) => Err(ErrorReply::unavailable(
            "this server is not registered in the store",
        )),
        Ok(Err(_)) => Err(ErrorReply::unavailable("the store is unavailable")),
        Err(_) => Err(ErrorReply::unavailable("the store does not answer")),
    }
}

/// A server with a full store still coordinates and deletes, so it stays ready and says so. Once
/// etcd refuses every write, it is not ready.
fn ready(space: Option<StoreSpace>) -> HandlerResult<CheckReadiness> {
    match space {
        Some(space) if space.is_alarm_raised => Err(ErrorReply::unavailable(&format!(
            "the datastore is full ({space}), and etcd refuses writes (NOSPACE)"
        ))),
        Some(space) if space.is_full() => Ok(format!(
            "ready\nwarning: the datastore is full ({space}): new data is refused\n"
        )),
        _ => Ok("ready\n".to_owned()),
    }
}

async fn metrics(call: Call<ShowMetrics>) -> HandlerResult<ShowMetrics> {
    let services = &call.services;
    if let Some(sight) = services.cluster.view() {
        services.metrics.cluster(&sight);
    }
    let lasting = services.store.without_majority_for().unwrap_or_default();
    let seconds = i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX);
    services.metrics.without_majority.set(seconds);
    if let Ok(state) = services.reports.history_state().await {
        let seconds = state.outage.map_or(0, |(_, seconds)| seconds.max(1));
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        services.metrics.history_unavailable.set(seconds);
    }
    if let Some(space) = services.store.space() {
        services.metrics.store_space(&space);
    }
    Ok(services.metrics.encode())
}
