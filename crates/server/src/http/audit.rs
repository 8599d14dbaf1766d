//! Requests in the audit log.
//!
//! The definition of an endpoint says whether its calls are recorded, and which parts of the
//! request are in the record. A change is recorded before its handler runs, and its outcome before
//! the reply. Handlers add what only they know ([`AuditNotes`]).
//!
//! The text of a refusal is left out where it may repeat the request (400): a request may contain
//! a secret.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use bunraku_control::audit::{AuditAction, AuditOrigin, AuditVerdict};
use bunraku_wire::api::{AuditOutcome, REASON_HEADER, REQUEST_ID_HEADER};
use bunraku_wire::endpoints::{Audited, Definition, Verb};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use uuid::Uuid;

use super::caller::ConnectionInfo;
use super::reply::ErrorReply;
use super::routes::Services;

/// The longest request id that a caller may choose.
const LONGEST_ID: usize = 128;
/// The largest body that is searched for parts to record.
const LARGEST_BODY: usize = 8 << 20;

/// Returns the id of a request: the caller's own, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let is_usable = |id: &&str| {
        (1..=LONGEST_ID).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    let own = headers.get(REQUEST_ID_HEADER);
    let own = own.and_then(|id| id.to_str().ok()).filter(is_usable);
    own.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// Returns who sends a request, from where, and why.
pub(super) fn origin(request: &Request, request_id: &str) -> AuditOrigin {
    let connection = request.extensions().get::<ConnectionInfo>();
    let identity = connection.and_then(|connection| connection.identity.as_deref());
    let address = connection.map(|connection| connection.address.ip().to_canonical().to_string());
    let text = |name: &str| {
        let value = request.headers().get(name)?;
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (!text.is_empty()).then_some(text)
    };
    AuditOrigin {
        client: text(header::USER_AGENT.as_str()),
        reason: text(REASON_HEADER),
        request_id: Some(request_id.to_owned()),
        ..AuditOrigin::peer(identity, address)
    }
}

/// The parts of a request that its record is made of.
pub(super) struct RecordedRequest {
    pub(super) definition: &'static Definition,
    /// The values in the path, by name.
    pub(super) path: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl RecordedRequest {
    pub(super) fn action(&self) -> AuditAction {
        let definition = self.definition;
        let body = self.readable_body();
        let value = |name: &str| -> Option<Value> {
            let in_path = self.path.iter().find(|(known, _)| known == name);
            match in_path {
                Some((_, value)) => Some(Value::String(value.clone())),
                None => member(&body, name).cloned(),
            }
        };
        let mut action = AuditAction::new(definition.action());
        let object = match definition.object {
            Some((kind, name)) => Some((kind.to_owned(), name.to_owned())),
            None => self
                .path
                .first()
                .map(|(name, _)| (name.clone(), name.clone())),
        };
        if let Some((kind, name)) = &object
            && let Some(Value::String(value)) = value(name)
        {
            action = action.on(kind, value);
        }
        for (name, value) in &self.path {
            if object.as_ref().is_none_or(|(_, used)| used != name) {
                action = action.detail(name, value.clone());
            }
        }
        for name in definition.details {
            if let Some(value) = value(name) {
                action = action.detail(name, value);
            }
        }
        let reason = member(&body, "reason").and_then(Value::as_str);
        action.because(reason)
    }

    fn readable_body(&self) -> Value {
        if self.body.is_empty() || self.body.len() > LARGEST_BODY {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Returns a member of a value: `plan.id`.
fn member<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |value, name| value.get(name))
}

/// What handlers add to the record of their request.
#[derive(Clone, Default)]
pub(crate) struct AuditNotes(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    details: Vec<(&'static str, Value)>,
    nothing_changed: bool,
    message: Option<String>,
}

impl AuditNotes {
    /// Adds to the details. Never a secret.
    pub(crate) fn detail(&self, name: &'static str, value: impl Into<Value>) {
        self.notes().details.push((name, value.into()));
    }

    /// Says what became of a request that succeeded, such as that it waits for somebody.
    pub(crate) fn message(&self, message: String) {
        self.notes().message = Some(message);
    }

    /// Leaves the request out of the log, because it changed nothing.
    pub(crate) fn nothing_changed(&self) {
        self.notes().nothing_changed = true;
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a handler, and records its request if the definition says so.
pub(super) async fn recorded<T: Send>(
    services: &Services,
    request: RecordedRequest,
    notes: AuditNotes,
    handler: impl Future<Output = Result<T, ErrorReply>>,
) -> Result<T, ErrorReply> {
    if request.definition.audited != Audited::Change {
        return match handler.await {
            Ok(value) => Ok(value),
            Err(refusal) => {
                record_refusal(services, &request, &refusal).await;
                Err(refusal)
            }
        };
    }
    let action = request.action();
    let mut begun = match request.definition.verb {
        Verb::Delete => services.audit.begin_deletion(action).await?,
        _ => services.audit.begin(action).await?,
    };
    let result = handler.await;
    let notes = std::mem::take(&mut *notes.notes());
    for (name, value) in notes.details {
        begun.detail(name, value);
    }
    let ended = result.as_ref().err().map(verdict);
    match ended {
        None if notes.nothing_changed => begun.nothing_changed().await,
        // A change is acknowledged once its outcome is in the log, and not before.
        None => {
            let verdict = AuditVerdict {
                message: notes.message,
                ..AuditOutcome::Succeeded.into()
            };
            begun.finish(verdict).await?;
        }
        Some(verdict) => drop(begun.finish(verdict).await),
    }
    result
}

/// Records that a request was refused, if the log contains such refusals.
pub(super) async fn record_refusal(
    services: &Services,
    request: &RecordedRequest,
    refusal: &ErrorReply,
) {
    let status = refusal.status();
    let is_denied = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
    );
    let is_change = matches!(
        request.definition.audited,
        Audited::Change | Audited::ByService
    );
    if is_denied || (is_change && status.is_client_error()) {
        services
            .audit
            .refuse(request.action(), verdict(refusal))
            .await;
    }
}

/// Records a refused request to a path that does not exist.
pub(super) async fn record_unknown_path(services: &Services, refusal: &ErrorReply) {
    if refusal.status() != StatusCode::NOT_FOUND {
        let action = AuditAction::new("call-unknown-endpoint");
        services.audit.refuse(action, verdict(refusal)).await;
    }
}

fn verdict(error: &ErrorReply) -> AuditVerdict {
    let status = error.status();
    let outcome = if status.is_client_error() {
        AuditOutcome::Refused
    } else {
        AuditOutcome::Failed
    };
    let message = (status != StatusCode::BAD_REQUEST).then(|| error.message().to_owned());
    AuditVerdict {
        outcome,
        status: Some(status.as_u16()),
        message,
    }
}

#[cfg(test)]
mod tests {
    use bunraku_wire::endpoints::{self, CreateEnvironment, CreateRun, Endpoint, RevokeToken};
    use serde_json::json;

    use super::*;

    fn action(definition: &Definition, path: &[(&str, &str)], body: Value) -> Value {
        let definition = endpoints::all()
            .find(|known| known.name == definition.name)
            .expect("a defined endpoint");
        let request = RecordedRequest {
            definition,
            path: path
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: Bytes::from(body.to_string()),
        };
        let store = std::sync::Arc::new(bunraku_store::testing::MemoryStore::new());
        let log = bunraku_control::AuditLog::new(
            store,
            bunraku_control::Clock::system(),
            bunraku_model::ServerId(Uuid::nil()),
            "server-1",
            bunraku_control::AuditOptions::default(),
        );
        let entry = log.entry(request.action(), AuditOutcome::Succeeded.into());
        json!({
            "action": entry.action,
            "object": entry.object,
            "details": entry.details,
            "reason": entry.reason,
        })
    }

    #[test]
    fn a_record_has_what_the_definition_names_and_nothing_else() {
        let body = json!({
            "name": "production",
            "url": "https://bob:hunter2@git.example/site.git",
            "policy": "auto",
            "hook_secret": "hunter2",
            "reason": "a new site",
        });
        let record = action(&CreateEnvironment::DEFINITION, &[], body);
        assert_eq!(
            record,
            json!({
                "action": "create-environment",
                "object": "environment/production",
                "details": {"url": "https://git.example/site.git", "policy": "auto"},
                "reason": "a new site",
            })
        );
        assert!(!record.to_string().contains("hunter2"));
    }

    #[test]
    fn objects_come_from_the_path_or_from_inside_the_body() {
        let plan = json!({"plan": {"id": "p1", "environment": "production", "steps": []}});
        let record = action(&CreateRun::DEFINITION, &[], plan);
        assert_eq!(record["object"], "environment/production");
        assert_eq!(record["details"], json!({"plan.id": "p1"}));
        let record = action(&RevokeToken::DEFINITION, &[("id", "12ab")], json!(null));
        assert_eq!(record["object"], "token/12ab");
    }

    #[test]
    fn only_harmless_request_ids_are_taken_over() {
        let id = |text: &str| {
            let mut headers = HeaderMap::new();
            let value = http::HeaderValue::from_bytes(text.as_bytes()).expect("a header");
            headers.insert(REQUEST_ID_HEADER, value);
            request_id(&headers)
        };
        assert_eq!(id("deploy-42.a:b_c"), "deploy-42.a:b_c");
        for bad in ["", "with space", "ä", &"x".repeat(129)] {
            assert!(Uuid::parse_str(&id(bad)).is_ok(), "{bad} is replaced");
        }
    }
}
