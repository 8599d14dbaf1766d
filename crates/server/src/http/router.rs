//! All routes, with the limits and checks around them.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bunraku_store::stale::{self, Permission};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{
    Services, catalogs, certificates, cluster, commands, compiles, content, environments, facts,
    join, locks, modules, nodes, once, outputs, query, reactors, releases, reports, runs, server,
    targets, tokens, triggers,
};
use super::{access, health, old_data, reply::Refusal};

/// Limits on requests.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Bytes in a fact set.
    pub facts_limit: usize,
    /// Bytes in any other body.
    pub body_limit: usize,
    /// Until the reply's head: covers a body that trickles in, and long polls.
    pub request_timeout: Duration,
    /// How long each request waits before it is handled, and each reply before
    /// it is sent. Only tests delay anything.
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

/// The body limit of the route, for the message.
#[derive(Clone, Copy)]
pub(super) struct BodyLimit(pub(super) usize);

#[derive(OpenApi)]
#[openapi(info(
    title = "Bunraku",
    description = "An asynchronous control plane for configuration management. Every call needs a client certificate, except /v1/join."
))]
struct Document;

/// By how large a body they take.
struct Routes {
    facts: OpenApiRouter<Services>,
    packages: OpenApiRouter<Services>,
    others: OpenApiRouter<Services>,
}

fn routes() -> Routes {
    let packages = OpenApiRouter::new().routes(routes!(modules::list, modules::publish));
    let facts = OpenApiRouter::new()
        .routes(routes!(facts::submit, facts::show))
        .routes(routes!(facts::history))
        .routes(routes!(facts::difference))
        // Plans of thousands of nodes are as large as facts.
        .routes(routes!(runs::list, runs::create));
    let others = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(join::join))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(server::show))
        .routes(routes!(server::openapi))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::show, nodes::remove))
        .routes(routes!(nodes::disable))
        .routes(routes!(nodes::enable))
        .routes(routes!(nodes::report_activity))
        .routes(routes!(nodes::queue, nodes::report_queue))
        .routes(routes!(reports::list))
        .routes(routes!(reports::stream_all))
        .routes(routes!(reports::find))
        .routes(routes!(reports::show))
        .routes(routes!(reports::take, reports::events))
        .routes(routes!(reports::follow))
        .routes(routes!(query::query))
        .routes(routes!(query::nodes))
        .routes(routes!(commands::send))
        .routes(routes!(commands::status))
        .routes(routes!(commands::answer))
        .routes(routes!(commands::stream))
        .routes(routes!(certificates::list))
        .routes(routes!(certificates::issue))
        .routes(routes!(certificates::renew))
        .routes(routes!(certificates::revoke))
        .routes(routes!(certificates::requests))
        .routes(routes!(certificates::sign))
        .routes(routes!(certificates::reject))
        .routes(routes!(certificates::revocation_list))
        .routes(routes!(cluster::status))
        .routes(routes!(cluster::servers))
        .routes(routes!(cluster::invite))
        .routes(routes!(cluster::join))
        .routes(routes!(cluster::join_over_ssh))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::remove))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(content::show))
        .routes(routes!(targets::show))
        .routes(routes!(targets::catalog))
        .routes(routes!(releases::list, releases::create))
        .routes(routes!(releases::show))
        .routes(routes!(releases::rollback))
        .routes(routes!(catalogs::list))
        .routes(routes!(catalogs::proposed))
        .routes(routes!(catalogs::show))
        .routes(routes!(catalogs::diff))
        .routes(routes!(catalogs::between_releases))
        .routes(routes!(releases::hold, releases::resume))
        .routes(routes!(environments::list, environments::add))
        .routes(routes!(
            environments::show,
            environments::change,
            environments::remove
        ))
        .routes(routes!(environments::deploy))
        .routes(routes!(environments::deploy_status))
        .routes(routes!(environments::hook))
        .routes(routes!(environments::assign))
        .routes(routes!(compiles::request))
        .routes(routes!(compiles::queue))
        .routes(routes!(compiles::statuses))
        .routes(routes!(once::list))
        .routes(routes!(once::show))
        .routes(routes!(once::standing, once::standing_with))
        .routes(routes!(once::define))
        .routes(routes!(once::contribute, once::withdraw))
        .routes(routes!(once::claim))
        .routes(routes!(once::keep))
        .routes(routes!(once::finish))
        .routes(routes!(once::attempt))
        .routes(routes!(once::reset))
        .routes(routes!(locks::list))
        .routes(routes!(locks::show, locks::define))
        .routes(routes!(locks::acquire))
        .routes(routes!(locks::renew))
        .routes(routes!(locks::release))
        .routes(routes!(locks::leave))
        .routes(routes!(locks::break_lock))
        .routes(routes!(runs::show))
        .routes(routes!(runs::log))
        .routes(routes!(runs::stop))
        .routes(routes!(runs::cancel))
        .routes(routes!(triggers::fire))
        .routes(routes!(triggers::list))
        .routes(routes!(triggers::show, triggers::define, triggers::forget))
        .routes(routes!(triggers::history))
        .routes(routes!(reactors::list))
        .routes(routes!(reactors::test))
        .routes(routes!(reactors::hook))
        .routes(routes!(outputs::reads))
        .routes(routes!(outputs::inputs))
        .routes(routes!(modules::versions))
        .routes(routes!(modules::show, modules::remove))
        .routes(routes!(modules::history))
        .routes(routes!(modules::keys, modules::trust))
        .routes(routes!(modules::revoke))
        .routes(routes!(modules::revoked));
    Routes {
        facts,
        packages,
        others,
    }
}

/// The description that the server serves.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    let routes = routes();
    let all = routes.others.merge(routes.facts).merge(routes.packages);
    all.into_openapi()
}

/// The service that answers every request.
pub(crate) fn router(services: &Services, options: &RouterOptions) -> Router {
    let routes = routes();
    let facts: Router<Services> = routes.facts.into();
    let packages: Router<Services> = routes.packages.into();
    let others: Router<Services> = routes.others.into();
    let router = limited(others, options.body_limit)
        .merge(limited(facts, options.facts_limit))
        .merge(limited(
            packages,
            bunraku_compile::modules::LARGEST_PACKAGE as usize,
        ))
        // Never reached by what the table names; the check answers before.
        .fallback(async || Refusal::not_found("there is nothing at this path".to_owned()))
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

/// What probes on the same machine may ask without a certificate.
pub(crate) fn health_router(services: &Services) -> Router {
    let routes: Router<Services> = OpenApiRouter::new()
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .into();
    routes.with_state(services.clone())
}

fn limited(router: Router<Services>, limit: usize) -> Router<Services> {
    router
        .layer(DefaultBodyLimit::max(limit))
        .layer(axum::Extension(BodyLimit(limit)))
}

/// Counts, logs, and ends what takes too long.
async fn observe(
    State((services, timeout)): State<(Services, Duration)>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = path.as_ref().map_or("none", MatchedPath::as_str).to_owned();
    let running = tokio::time::timeout(timeout, next.run(request));
    let answered = if old_data::is_fine_for(&method, &route) {
        let permission = Permission::default();
        let response = stale::allow(permission.clone(), running).await;
        response.map(|response| old_data::mark(response, &permission, &*services.store))
    } else {
        running.await
    };
    let response = answered.unwrap_or_else(|_| Refusal::timed_out().into_response());
    let took = started.elapsed();
    let status = response.status().as_u16();
    services
        .metrics
        .request(method.as_str(), &route, status, took);
    tracing::debug!(%method, route, status, ms = took.as_millis() as u64, "request");
    response
}
