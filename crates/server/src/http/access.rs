//! Access control: each endpoint's definition states which roles may call it, and what an
//! operator's rules must allow.
//!
//! A route without a definition refuses every caller. Handlers do not check roles, so they
//! cannot forget to. Those that have to check each thing that they touch use the [`Permit`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bunraku_control::ServiceError;
use bunraku_model::access::AccessTarget;
use bunraku_model::{EnvironmentName, NodeName, Role};
use bunraku_wire::endpoints::{self, Access, Definition, Needs, OldData, ScopePlace};
use bytes::Bytes;
use http::header;

use super::audit::{self, RecordedRequest};
use super::caller::{Caller, ConnectionInfo};
use super::guarded_body;
use super::permit::Permit;
use super::reply::ErrorReply;
use super::routes::Services;

/// The bytes that a body without a length counts for.
const UNKNOWN_LENGTH: u64 = 1 << 20;
/// The percentage of the datastore up to which nodes may write. From a lower one on, a store refuses
/// what adds data. The rest is for operators, who have to be able to remove what fills it.
const NODES_SHARE: u8 = 95;
/// The time after which a node may try again when the datastore is full.
const FULL: Duration = Duration::from_secs(60);

/// Lets a request through with its [`Caller`], or refuses it.
pub(crate) async fn check(
    State(services): State<Services>,
    path: Option<MatchedPath>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let template = path.as_ref().map_or("", MatchedPath::as_str);
    let definition = endpoints::find(request.method(), template);
    let access = definition.map(|known| known.access);
    // The endpoint refuses unreadable parameters and gives the reason.
    let named = |wanted: &str| {
        let parameters = parameters.as_ref().ok()?;
        let found = parameters.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.to_owned())
    };
    let node = named("node");
    let connection = request.extensions().get::<ConnectionInfo>().cloned();
    match decide(
        access,
        template,
        &services,
        connection.as_ref(),
        node.as_deref(),
    ) {
        Ok(caller) => {
            let mut permit = None;
            if let Some(caller) = caller {
                if let Some(length) = length_of_node_write(&caller, &request)
                    && let Err(refusal) = admit(&services, &caller.name, length).await
                {
                    let refusal = ErrorReply::from(refusal);
                    record(&services, definition, parameters, &refusal).await;
                    return refusal.into_response();
                }
                if let Some(definition) = definition
                    && let Some(needs) = definition.needs
                    && caller.role == Role::Operator
                {
                    let target = target_in_path(needs.place, &named);
                    match permitted(&services, &caller, definition, needs, target.clone()).await {
                        Ok(granted) => {
                            request.extensions_mut().insert(granted.clone());
                            permit = Some((granted, needs, target));
                        }
                        Err(refusal) => {
                            record(&services, Some(definition), parameters, &refusal).await;
                            return refusal.into_response();
                        }
                    }
                }
                request.extensions_mut().insert(caller);
            }
            let is_safe = request.method().is_safe();
            let response = next.run(request).await;
            match permit {
                Some((permit, needs, target)) if is_safe => {
                    still_permitted(&services, response, &permit, needs, target).await
                }
                _ => response,
            }
        }
        Err(refusal) => {
            record(&services, definition, parameters, &refusal).await;
            refusal.into_response()
        }
    }
}

/// Records a refusal in the audit log.
async fn record(
    services: &Services,
    definition: Option<&'static Definition>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    refusal: &ErrorReply,
) {
    let Some(definition) = definition else {
        return audit::record_unknown_path(services, refusal).await;
    };
    let path = parameters.map(|parameters| {
        let values = parameters.iter();
        values
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    });
    let request = RecordedRequest {
        definition,
        path: path.unwrap_or_default(),
        body: Bytes::new(),
    };
    audit::record_refusal(services, &request, refusal).await;
}

/// Returns what the path of a request names.
fn target_in_path(
    place: ScopePlace,
    named: &impl Fn(&str) -> Option<String>,
) -> Option<AccessTarget> {
    let environment = || {
        let name = EnvironmentName::new(named("environment")?).ok()?;
        Some(AccessTarget::Environment(name))
    };
    let node = || {
        let name = NodeName::new(named("node")?).ok()?;
        Some(AccessTarget::Node(name))
    };
    match place {
        ScopePlace::Everything => None,
        ScopePlace::Environment => environment(),
        ScopePlace::Node => node(),
        // For the text of a refusal.
        ScopePlace::Each => environment().or_else(node),
    }
}

/// Decides on an operator's request with the rules as they are now.
async fn permitted(
    services: &Services,
    caller: &Caller,
    definition: &Definition,
    needs: Needs,
    target: Option<AccessTarget>,
) -> Result<Permit, ErrorReply> {
    let may_be_old = definition.old_data == OldData::Allowed;
    let known = services.access.newest(may_be_old).await?;
    let operator = caller.operator();
    // Root on a server has its key, and can always repair the rules there.
    if definition.tag == "access" && services.certificates.is_own_operator(&caller.certificate) {
        return Ok(Permit::for_recovery(&services.access, known, operator));
    }
    let permit = Permit::new(&services.access, known, operator);
    permit.check(needs, target).await?;
    Ok(permit)
}

/// Decides again if the rules have changed while the reply was prepared, and as long as it is
/// sent. What was written stays written; this is for what is shown.
async fn still_permitted(
    services: &Services,
    response: Response,
    permit: &Permit,
    needs: Needs,
    target: Option<AccessTarget>,
) -> Response {
    if !response.status().is_success() {
        return response;
    }
    let known = services.access.subscribe().borrow().clone();
    if let Some(known) = known
        && known.modified != permit.rules().modified
    {
        let now = Permit::new(&services.access, known, permit.operator().clone());
        if let Err(refusal) = now.check(needs, target.clone()).await {
            return refusal.into_response();
        }
    }
    if guarded_body::is_stream(&response) {
        return guarded_body::guard(response, services, permit, needs, target);
    }
    response
}

/// Accounts for a write of a node with a body of this length, or refuses it.
async fn admit(services: &Services, node: &NodeName, length: u64) -> Result<(), ServiceError> {
    if let Some(fullness) = services.store.fullness()
        && fullness > NODES_SHARE
    {
        return Err(ServiceError::OverBudget {
            message: format!("the datastore is {fullness} % full; the rest is for operators"),
            retry_after: FULL,
        });
    }
    services.rates.admit(node, length).await
}

/// Returns the length of the body if this is a write of a node. Operators and servers have no
/// budget: they must be able to act when nodes flood.
fn length_of_node_write(caller: &Caller, request: &Request) -> Option<u64> {
    if caller.role != Role::Node || request.method().is_safe() {
        return None;
    }
    // Our clients say the length. Without it, a long body counts.
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    Some(length.unwrap_or(UNKNOWN_LENGTH))
}

fn decide(
    access: Option<Access>,
    template: &str,
    services: &Services,
    connection: Option<&ConnectionInfo>,
    node: Option<&str>,
) -> Result<Option<Caller>, ErrorReply> {
    let caller = identify(services, connection);
    match (access, caller) {
        (Some(Access::Anonymous), caller) => Ok(caller.ok()),
        (_, Err(refusal)) => Err(refusal),
        (None, Ok(_)) => Err(undefined(template)),
        (Some(access), Ok(caller)) if allows(access, &caller, node) => Ok(Some(caller)),
        (Some(access), Ok(caller)) => Err(not_allowed(access, &caller)),
    }
}

/// Returns the refusal of a request that no definition covers.
fn undefined(template: &str) -> ErrorReply {
    match template {
        "" => ErrorReply::not_found("no such path".to_owned()),
        _ if endpoints::all().any(|known| known.template == template) => {
            ErrorReply::method_not_allowed()
        }
        _ => ErrorReply::forbidden("this call is not permitted for any role"),
    }
}

/// Identifies the caller. Runs for every request, because a connection may outlive its
/// certificate.
fn identify(
    services: &Services,
    connection: Option<&ConnectionInfo>,
) -> Result<Caller, ErrorReply> {
    let Some(identity) = connection.and_then(|connection| connection.identity.as_ref()) else {
        return Err(ErrorReply::unauthenticated(
            "this needs a client certificate",
            "join first, or pass `--credentials`",
        ));
    };
    if let Some(distrusted) = services.certificates.distrust(identity) {
        return Err(distrusted.into());
    }
    if services.revocations.contains(&identity.serial) {
        return Err(ErrorReply::unauthenticated(
            "the certificate is revoked",
            "ask an operator for a new one",
        ));
    }
    if identity.not_after <= services.clock.now() {
        return Err(ErrorReply::unauthenticated(
            "the certificate has expired",
            "join again",
        ));
    }
    Ok(Caller {
        name: identity.name.clone(),
        role: identity.role,
        certificate: Arc::clone(identity),
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
        Access::OperatorOrServer => matches!(caller.role, Role::Operator | Role::Server),
        Access::OwnNode => own(),
        Access::OwnNodeOrOperator => caller.role == Role::Operator || own(),
        Access::NodeOrOperator => matches!(caller.role, Role::Node | Role::Operator),
    }
}

fn not_allowed(access: Access, caller: &Caller) -> ErrorReply {
    let wanted = match access {
        Access::Operator => "an operator's certificate",
        Access::OperatorOrServer => "an operator's or a server's certificate",
        Access::OwnNode => "that node's own certificate",
        Access::NodeOrOperator => "a node's or an operator's certificate",
        _ => "an operator's certificate, or that node's own",
    };
    ErrorReply::forbidden(&format!(
        "`{}` is a {}; this needs {wanted}",
        caller.name, caller.role
    ))
}
