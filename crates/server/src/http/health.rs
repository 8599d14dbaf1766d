//! Is the process alive, and can it serve?

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::routes::Services;
use bunraku_control::keys;

/// A store that takes longer than this does not serve.
const PATIENCE: Duration = Duration::from_secs(3);

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// The store answers, and the server is not shutting down.
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, body = String), (status = 503, body = String)))]
pub(crate) async fn readyz(State(services): State<Services>) -> (StatusCode, &'static str) {
    if services.shutdown.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    let key = keys::server(services.identity.id);
    match tokio::time::timeout(PATIENCE, services.store.get(&key)).await {
        Ok(Ok(Some(_))) => (StatusCode::OK, "ready\n"),
        Ok(Ok(None)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "this server is not registered in the store\n",
        ),
        Ok(Err(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the store is not available\n",
        ),
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the store does not answer\n",
        ),
    }
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String)))]
pub(crate) async fn metrics(State(services): State<Services>) -> Response {
    if let Some(sight) = services.cluster.sight() {
        services.metrics.cluster(&sight);
    }
    let lasting = services.store.without_majority_for().unwrap_or_default();
    let seconds = i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX);
    services.metrics.without_majority.set(seconds);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], services.metrics.encode()).into_response()
}
