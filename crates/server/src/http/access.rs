//! Who may call which route: one table, and no by default.
//!
//! A route that is not in the table answers nobody. Handlers do not check
//! roles; they cannot forget to.

use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bunraku_model::{NodeName, Role};
use http::Method;

use super::caller::{Caller, ConnectionInfo};
use super::reply::Refusal;
use super::routes::Services;

/// What a route asks of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Answers without a certificate.
    Anonymous,
    /// Any valid certificate.
    AnyRole,
    Operator,
    /// The node in the path, and nobody else.
    OwnNode,
    OwnNodeOrOperator,
}

/// The whole table.
pub(crate) const TABLE: &[(&str, &str, Access)] = &[
    ("POST", "/v1/join", Access::Anonymous),
    ("GET", "/healthz", Access::AnyRole),
    ("GET", "/readyz", Access::AnyRole),
    ("GET", "/metrics", Access::AnyRole),
    ("GET", "/v1/openapi.json", Access::AnyRole),
    ("GET", "/v1/server", Access::AnyRole),
    ("GET", "/v1/nodes", Access::Operator),
    ("GET", "/v1/nodes/{node}", Access::OwnNodeOrOperator),
    ("DELETE", "/v1/nodes/{node}", Access::Operator),
    ("POST", "/v1/nodes/{node}/disable", Access::Operator),
    ("POST", "/v1/nodes/{node}/enable", Access::Operator),
    ("PUT", "/v1/nodes/{node}/activity", Access::OwnNode),
    ("PUT", "/v1/nodes/{node}/queue", Access::OwnNode),
    ("GET", "/v1/nodes/{node}/queue", Access::OwnNodeOrOperator),
    (
        "POST",
        "/v1/nodes/{node}/reports/{id}/events",
        Access::OwnNode,
    ),
    (
        "GET",
        "/v1/nodes/{node}/reports/{id}/events",
        Access::Operator,
    ),
    (
        "GET",
        "/v1/nodes/{node}/reports/{id}/stream",
        Access::Operator,
    ),
    ("GET", "/v1/nodes/{node}/reports/{id}", Access::Operator),
    ("GET", "/v1/reports", Access::Operator),
    ("GET", "/v1/reports/stream", Access::Operator),
    ("GET", "/v1/reports/{id}", Access::Operator),
    ("PUT", "/v1/nodes/{node}/facts", Access::OwnNode),
    ("GET", "/v1/nodes/{node}/facts", Access::OwnNodeOrOperator),
    (
        "GET",
        "/v1/nodes/{node}/facts/history",
        Access::OwnNodeOrOperator,
    ),
    (
        "GET",
        "/v1/nodes/{node}/facts/difference",
        Access::OwnNodeOrOperator,
    ),
    ("GET", "/v1/nodes/{node}/stream", Access::OwnNode),
    ("GET", "/v1/nodes/{node}/commands/{id}", Access::Operator),
    (
        "PUT",
        "/v1/nodes/{node}/commands/{id}/result",
        Access::OwnNode,
    ),
    ("POST", "/v1/query", Access::Operator),
    ("POST", "/v1/query/nodes", Access::Operator),
    ("POST", "/v1/commands", Access::Operator),
    ("GET", "/v1/certificates", Access::Operator),
    ("POST", "/v1/certificates/issue", Access::Operator),
    ("POST", "/v1/certificates/renew", Access::AnyRole),
    ("POST", "/v1/certificates/{name}/revoke", Access::Operator),
    ("GET", "/v1/certificate-requests", Access::Operator),
    (
        "POST",
        "/v1/certificate-requests/{name}/sign",
        Access::Operator,
    ),
    (
        "DELETE",
        "/v1/certificate-requests/{name}",
        Access::Operator,
    ),
    ("GET", "/v1/crl", Access::AnyRole),
    ("GET", "/v1/cluster", Access::Operator),
    ("GET", "/v1/servers", Access::AnyRole),
    ("POST", "/v1/cluster/invitations", Access::Operator),
    // The token in it says that an operator wants it.
    ("POST", "/v1/cluster/join", Access::Anonymous),
    // The server that asks is looked at over SSH.
    ("POST", "/v1/cluster/join-over-ssh", Access::Anonymous),
    ("POST", "/v1/cluster/members/{name}/drain", Access::Operator),
    ("DELETE", "/v1/cluster/members/{name}", Access::Operator),
    ("GET", "/v1/tokens", Access::Operator),
    ("POST", "/v1/tokens", Access::Operator),
    ("DELETE", "/v1/tokens/{id}", Access::Operator),
    // To a node, only what its released catalogs name.
    ("GET", "/v1/content/{id}", Access::AnyRole),
    ("GET", "/v1/nodes/{node}/target", Access::OwnNodeOrOperator),
    (
        "GET",
        "/v1/nodes/{node}/catalogs/{id}",
        Access::OwnNodeOrOperator,
    ),
    ("GET", "/v1/releases/{environment}", Access::Operator),
    ("POST", "/v1/releases/{environment}", Access::Operator),
    (
        "GET",
        "/v1/releases/{environment}/{number}",
        Access::Operator,
    ),
    (
        "POST",
        "/v1/releases/{environment}/rollback",
        Access::Operator,
    ),
    ("GET", "/v1/catalogs", Access::Operator),
    ("POST", "/v1/catalogs/proposed", Access::Operator),
    ("GET", "/v1/catalogs/{id}", Access::Operator),
    ("GET", "/v1/catalogs/{id}/diff", Access::Operator),
    ("GET", "/v1/releases/{environment}/diff", Access::Operator),
    ("PUT", "/v1/releases/{environment}/hold", Access::Operator),
    (
        "DELETE",
        "/v1/releases/{environment}/hold",
        Access::Operator,
    ),
    ("GET", "/v1/environments", Access::Operator),
    ("POST", "/v1/environments", Access::Operator),
    ("GET", "/v1/environments/{environment}", Access::Operator),
    ("PUT", "/v1/environments/{environment}", Access::Operator),
    ("DELETE", "/v1/environments/{environment}", Access::Operator),
    (
        "POST",
        "/v1/environments/{environment}/deploys",
        Access::Operator,
    ),
    (
        "GET",
        "/v1/environments/{environment}/deploys/{number}",
        Access::Operator,
    ),
    // Its body is signed with the environment's own secret.
    ("POST", "/v1/hooks/{environment}", Access::Anonymous),
    ("PUT", "/v1/nodes/{node}/environment", Access::Operator),
    ("POST", "/v1/compiles", Access::Operator),
    ("GET", "/v1/compiles/queue", Access::Operator),
    ("POST", "/v1/compiles/status", Access::Operator),
    ("GET", "/v1/once", Access::Operator),
    ("GET", "/v1/once/{app}", Access::Operator),
    ("GET", "/v1/once/{app}/standing", Access::AnyRole),
    ("POST", "/v1/once/{app}/standing", Access::AnyRole),
    ("PUT", "/v1/once/{app}/definition", Access::AnyRole),
    (
        "PUT",
        "/v1/once/{app}/fragments/{node}",
        Access::OwnNodeOrOperator,
    ),
    (
        "DELETE",
        "/v1/once/{app}/fragments/{node}",
        Access::OwnNodeOrOperator,
    ),
    ("POST", "/v1/once/{app}/claims", Access::AnyRole),
    ("PUT", "/v1/once/{app}/claims/{token}", Access::AnyRole),
    (
        "PUT",
        "/v1/once/{app}/claims/{token}/outcome",
        Access::AnyRole,
    ),
    ("GET", "/v1/once/{app}/attempts/{token}", Access::AnyRole),
    ("POST", "/v1/once/{app}/reset", Access::Operator),
    ("GET", "/v1/outputs/reads", Access::Operator),
    // To a node, only what its released catalogs read.
    ("GET", "/v1/nodes/{node}/inputs", Access::OwnNode),
    ("GET", "/v1/modules", Access::Operator),
    ("POST", "/v1/modules", Access::Operator),
    ("GET", "/v1/modules/{module}", Access::Operator),
    ("GET", "/v1/modules/{module}/{version}", Access::Operator),
    ("DELETE", "/v1/modules/{module}/{version}", Access::Operator),
    ("GET", "/v1/module-events", Access::Operator),
    ("GET", "/v1/module-keys", Access::Operator),
    ("POST", "/v1/module-keys", Access::Operator),
    ("POST", "/v1/module-keys/revoke", Access::Operator),
    // Nodes ask before they use a module.
    ("GET", "/v1/module-keys/revoked", Access::AnyRole),
    ("GET", "/v1/runs", Access::Operator),
    ("POST", "/v1/runs", Access::Operator),
    ("GET", "/v1/runs/{id}", Access::Operator),
    ("GET", "/v1/runs/{id}/log", Access::Operator),
    ("POST", "/v1/runs/{id}/stop", Access::Operator),
    ("POST", "/v1/runs/{id}/cancel", Access::Operator),
    ("GET", "/v1/locks", Access::AnyRole),
    ("GET", "/v1/locks/{lock}", Access::AnyRole),
    ("PUT", "/v1/locks/{lock}", Access::Operator),
    ("POST", "/v1/locks/{lock}/acquire", Access::AnyRole),
    ("PUT", "/v1/locks/{lock}/lease", Access::AnyRole),
    ("POST", "/v1/locks/{lock}/release", Access::AnyRole),
    ("POST", "/v1/locks/{lock}/leave", Access::AnyRole),
    ("POST", "/v1/locks/{lock}/break", Access::Operator),
    ("POST", "/v1/triggers/{trigger}/fire", Access::AnyRole),
    ("GET", "/v1/triggers", Access::Operator),
    ("GET", "/v1/triggers/{trigger}", Access::Operator),
    ("PUT", "/v1/triggers/{trigger}", Access::Operator),
    ("DELETE", "/v1/triggers/{trigger}", Access::Operator),
    ("GET", "/v1/trigger-events", Access::Operator),
    ("GET", "/v1/reactors", Access::Operator),
    ("POST", "/v1/reactors/test", Access::Operator),
    // The environment's secret says who may.
    (
        "POST",
        "/v1/hooks/{environment}/events/{hook}",
        Access::Anonymous,
    ),
];

/// What a route asks, if it is in the table.
pub(crate) fn access_of(method: &Method, path: &str) -> Option<Access> {
    // HEAD is served by GET's handler.
    let method = if method == Method::HEAD {
        "GET"
    } else {
        method.as_str()
    };
    TABLE
        .iter()
        .find(|(known, template, _)| *known == method && *template == path)
        .map(|(_, _, access)| *access)
}

/// Lets a request through, with its [`Caller`], or refuses it.
pub(crate) async fn check(
    State(services): State<Services>,
    path: Option<MatchedPath>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let template = path.as_ref().map_or("", MatchedPath::as_str);
    let access = access_of(request.method(), template);
    let node = parameters
        .iter()
        .find(|(name, _)| *name == "node")
        .map(|(_, value)| value.to_owned());
    let connection = request.extensions().get::<ConnectionInfo>().cloned();
    match decide(
        access,
        template,
        &services,
        connection.as_ref(),
        node.as_deref(),
    ) {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn decide(
    access: Option<Access>,
    template: &str,
    services: &Services,
    connection: Option<&ConnectionInfo>,
    node: Option<&str>,
) -> Result<Option<Caller>, Refusal> {
    let caller = identify(services, connection);
    match (access, caller) {
        (Some(Access::Anonymous), caller) => Ok(caller.ok()),
        (_, Err(refusal)) => Err(refusal),
        (None, Ok(_)) => Err(not_in_the_table(template)),
        (Some(access), Ok(caller)) if allows(access, &caller, node) => Ok(Some(caller)),
        (Some(access), Ok(caller)) => Err(not_allowed(access, &caller)),
    }
}

/// Nothing that the table does not name is carried out, whatever the router has.
fn not_in_the_table(template: &str) -> Refusal {
    match template {
        "" => Refusal::not_found("there is nothing at this path".to_owned()),
        _ if TABLE.iter().any(|(_, known, _)| *known == template) => Refusal::method_not_allowed(),
        _ => Refusal::forbidden("no role may call this"),
    }
}

/// Who is calling: asked at every request, because a connection may outlive
/// its certificate.
fn identify(services: &Services, connection: Option<&ConnectionInfo>) -> Result<Caller, Refusal> {
    let Some(identity) = connection.and_then(|connection| connection.identity.as_ref()) else {
        return Err(Refusal::unauthenticated(
            "this needs a client certificate",
            "join first, or pass `--credentials`",
        ));
    };
    if services.revocations.contains(&identity.serial) {
        return Err(Refusal::unauthenticated(
            "the certificate is revoked",
            "ask an operator for a new one",
        ));
    }
    if identity.not_after <= services.clock.now() {
        return Err(Refusal::unauthenticated(
            "the certificate has expired",
            "join again",
        ));
    }
    Ok(Caller {
        name: identity.name.clone(),
        role: identity.role,
    })
}

fn allows(access: Access, caller: &Caller, node: Option<&str>) -> bool {
    let own = || {
        caller.role == Role::Node
            && node.and_then(|name| NodeName::new(name).ok()).as_ref() == Some(&caller.name)
    };
    match access {
        Access::Anonymous | Access::AnyRole => true,
        Access::Operator => caller.role == Role::Operator,
        Access::OwnNode => own(),
        Access::OwnNodeOrOperator => caller.role == Role::Operator || own(),
    }
}

fn not_allowed(access: Access, caller: &Caller) -> Refusal {
    let wanted = match access {
        Access::Operator => "an operator's certificate",
        Access::OwnNode => "that node's own certificate",
        _ => "an operator's certificate, or that node's own",
    };
    Refusal::forbidden(&format!(
        "`{}` is a {}; this needs {wanted}",
        caller.name, caller.role
    ))
}
