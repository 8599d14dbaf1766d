//! All routes, with their limits and checks.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bunraku_control::audit::with_origin;
use bunraku_store::stale::{self, Permission};
use bunraku_wire::api::REQUEST_ID_HEADER;
use http::HeaderValue;

use super::endpoint::Routes;
use super::reply::ErrorReply;
use super::routes::{
    Services, access as access_rules, approvals, audit as audit_routes, authority, catalogs,
    certificates, cluster, commands, compiles, content, environments, facts, history, join, locks,
    modules, nodes, once, outputs, query, reactors, releases, reports, repositories, restore, runs,
    server, store, targets, tokens, triggers,
};
use super::{access, audit, health, old_data};

/// Limits on requests.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Maximum size of a fact set in bytes.
    pub facts_limit: usize,
    /// Maximum size of any other body in bytes.
    pub body_limit: usize,
    /// Time limit until the reply's head. Covers slow uploads and long polls.
    pub request_timeout: Duration,
    /// Delay before each request is handled and before each reply is sent. Only tests set it.
    pub delay: Option<fn() -> Duration>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            facts_limit: 8 << 20,
            body_limit: 1 << 20,
            request_timeout: Duration::from_secs(90),
            delay: None,
        }
    }
}

/// Returns a handler for every endpoint.
fn routes(options: &RouterOptions) -> Routes {
    let routes = Routes::new(options);
    let routes = health::add_routes(routes);
    let routes = server::add_routes(routes);
    let routes = join::add_routes(routes);
    let routes = access_rules::add_routes(routes);
    let routes = nodes::add_routes(routes);
    let routes = facts::add_routes(routes);
    let routes = query::add_routes(routes);
    let routes = commands::add_routes(routes);
    let routes = reports::add_routes(routes);
    let routes = certificates::add_routes(routes);
    let routes = approvals::add_routes(routes);
    let routes = authority::add_routes(routes);
    let routes = history::add_routes(routes);
    let routes = restore::add_routes(routes);
    let routes = store::add_routes(routes);
    let routes = audit_routes::add_routes(routes);
    let routes = tokens::add_routes(routes);
    let routes = cluster::add_routes(routes);
    let routes = environments::add_routes(routes);
    let routes = repositories::add_routes(routes);
    let routes = compiles::add_routes(routes);
    let routes = catalogs::add_routes(routes);
    let routes = content::add_routes(routes);
    let routes = targets::add_routes(routes);
    let routes = releases::add_routes(routes);
    let routes = outputs::add_routes(routes);
    let routes = modules::add_routes(routes);
    let routes = runs::add_routes(routes);
    let routes = once::add_routes(routes);
    let routes = locks::add_routes(routes);
    let routes = triggers::add_routes(routes);
    reactors::add_routes(routes)
}

/// Returns the service that answers every request.
pub(crate) fn router(services: &Services, options: &RouterOptions) -> Router {
    let router = routes(options)
        .into_router()
        // A defined endpoint never gets here. For other paths, the access check answers
        // first.
        .fallback(async || ErrorReply::not_found("no such path".to_owned()))
        .layer(middleware::from_fn_with_state(
            services.clone(),
            access::check,
        ))
        .layer(middleware::from_fn_with_state(
            (services.clone(), options.request_timeout),
            observe,
        ))
        .with_state(services.clone());
    match options.delay {
        None => router,
        Some(delay) => router.layer(middleware::from_fn(
            move |request: Request, next: Next| async move {
                tokio::time::sleep(delay()).await;
                let response = next.run(request).await;
                tokio::time::sleep(delay()).await;
                response
            },
        )),
    }
}

/// Returns the endpoints that probes on the same machine may call without a certificate.
pub(crate) fn health_router(services: &Services) -> Router {
    let routes = health::add_routes(Routes::new(&RouterOptions::default()));
    routes.into_router().with_state(services.clone())
}

/// Counts and logs requests, gives each an id and its origin for the audit log, and ends those
/// that take too long.
async fn observe(
    State((services, timeout)): State<(Services, Duration)>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = path.as_ref().map_or("none", MatchedPath::as_str).to_owned();
    let request_id = audit::request_id(request.headers());
    let origin = audit::origin(&request, &request_id);
    let running = with_origin(origin, next.run(request));
    let running = tokio::time::timeout(timeout, running);
    let answered = if old_data::is_allowed_for(&method, &route) {
        let permission = Permission::default();
        let response = stale::allow(permission.clone(), running).await;
        response.map(|response| old_data::mark(response, &permission, &*services.store))
    } else {
        running.await
    };
    let mut response = answered.unwrap_or_else(|_| ErrorReply::timed_out().into_response());
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    let took = started.elapsed();
    let status = response.status().as_u16();
    services
        .metrics
        .request(method.as_str(), &route, status, took);
    tracing::debug!(%method, route, status, request_id, ms = took.as_millis() as u64, "request");
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bunraku_wire::endpoints;

    use super::*;

    #[test]
    fn every_endpoint_has_a_handler() {
        let routes = routes(&RouterOptions::default());
        let registered: BTreeSet<&str> =
            routes.registered().iter().map(|known| known.name).collect();
        let defined: BTreeSet<&str> = endpoints::all().map(|known| known.name).collect();
        assert_eq!(registered, defined);
    }
}
