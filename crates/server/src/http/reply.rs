//! Converts a service's error to a status and a problem document.

use axum::Json;
use axum::response::{IntoResponse, Response};
use bunraku_store::history::HistoryError;
use bunraku_store::{NoMajority, StoreError};
use bunraku_wire::api::{Problem, ProblemBody, ProblemCode};
use http::{StatusCode, header};

use bunraku_control::ServiceError;
use bunraku_control::error::chain;

/// The hint for writes that a full store refused.
const FULL_HINT: &str = "deletions still work; see `bunraku cluster status`, or raise the quota of \
                         the datastores";
/// Seconds after which a node may try again when the store is full.
/// The seconds after which an agent sends its report again while history is unavailable.
const RETRY_HISTORY: u64 = 5;
const HISTORY_HINT: &str =
    "agents keep their reports and send them later; see why with `bunraku status`";
const RETRY_WHEN_FULL: u64 = 30;

/// An error reply.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    status: StatusCode,
    body: ProblemBody,
}

impl ErrorReply {
    fn new(status: StatusCode, code: ProblemCode, message: String, hint: Option<String>) -> Self {
        Self {
            status,
            body: ProblemBody {
                code,
                message,
                hint,
                wanted: None,
                retry_after_seconds: None,
            },
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.body.message
    }

    pub(crate) fn unauthenticated(message: &str, hint: &str) -> Self {
        let hint = Some(hint.to_owned());
        Self::new(
            StatusCode::UNAUTHORIZED,
            ProblemCode::Unauthenticated,
            message.to_owned(),
            hint,
        )
    }

    pub(crate) fn forbidden(message: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            ProblemCode::Forbidden,
            message.to_owned(),
            None,
        )
    }

    /// Adds what to do next.
    pub(crate) fn with_hint(mut self, hint: String) -> Self {
        self.body.hint = Some(hint);
        self
    }

    pub(crate) fn invalid(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ProblemCode::Invalid, message, None)
    }

    pub(crate) fn not_found(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, ProblemCode::NotFound, message, None)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path does not support that method".to_owned();
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            ProblemCode::Invalid,
            message,
            None,
        )
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request body exceeds the limit of {limit} bytes");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            ProblemCode::TooLarge,
            message,
            None,
        )
    }

    pub(crate) fn unsatisfiable_range(size: u64) -> Self {
        let message = format!("the range is outside the content ({size} bytes)");
        Self::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            ProblemCode::Invalid,
            message,
            None,
        )
    }

    pub(crate) fn unavailable(message: &str) -> Self {
        let message = message.to_owned();
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ProblemCode::Unavailable,
            message,
            None,
        )
    }

    pub(crate) fn timed_out() -> Self {
        let message = "the request took too long".to_owned();
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            ProblemCode::Busy,
            message,
            None,
        )
    }
}

impl From<ServiceError> for ErrorReply {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Invalid { message, hint } => {
                Self::new(StatusCode::BAD_REQUEST, ProblemCode::Invalid, message, hint)
            }
            ServiceError::NotFound { ref hint, .. } => {
                let hint = hint.clone();
                Self::new(
                    StatusCode::NOT_FOUND,
                    ProblemCode::NotFound,
                    error.to_string(),
                    hint,
                )
            }
            ServiceError::Conflict { message, hint } => {
                Self::new(StatusCode::CONFLICT, ProblemCode::Conflict, message, hint)
            }
            ServiceError::Gap { wanted } => {
                let message = error.to_string();
                let hint = Some("continue from that event".to_owned());
                let mut refusal =
                    Self::new(StatusCode::CONFLICT, ProblemCode::Conflict, message, hint);
                refusal.body.wanted = Some(wanted);
                refusal
            }
            ServiceError::Forbidden { message, hint } => {
                Self::new(StatusCode::FORBIDDEN, ProblemCode::Forbidden, message, hint)
            }
            ServiceError::TooLarge { ref hint, .. } => {
                let hint = hint.clone();
                Self::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    ProblemCode::TooLarge,
                    error.to_string(),
                    hint,
                )
            }
            ServiceError::OverBudget {
                message,
                retry_after,
            } => {
                let (status, code) = (StatusCode::TOO_MANY_REQUESTS, ProblemCode::Busy);
                let mut refusal = Self::new(status, code, message, None);
                // Whole seconds, and never immediately.
                let seconds = retry_after.as_millis().div_ceil(1_000).max(1);
                refusal.body.retry_after_seconds = u64::try_from(seconds).ok();
                refusal
            }
            ServiceError::Busy { message } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                ProblemCode::Busy,
                message,
                None,
            ),
            ServiceError::Unavailable { message, hint } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                ProblemCode::Unavailable,
                message,
                Some(hint),
            ),
            ServiceError::Store(error) => error.into(),
            ServiceError::History(error) => error.into(),
            ServiceError::Document { .. } | ServiceError::Internal { .. } => {
                tracing::error!(error = %chain(&error), "a request failed");
                Self::internal()
            }
        }
    }
}

impl From<HistoryError> for ErrorReply {
    fn from(error: HistoryError) -> Self {
        tracing::warn!(error = %chain(&error), "history is unavailable");
        let message = match &error {
            // The source may name files and addresses, which are for operators of the server.
            HistoryError::Full { .. } => "history is full; nothing was done",
            HistoryError::Busy { .. } => "history is busy; nothing was done",
            _ => "history is unavailable; nothing was done",
        };
        let mut refusal = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ProblemCode::Unavailable,
            message.to_owned(),
            Some(HISTORY_HINT.to_owned()),
        );
        refusal.body.retry_after_seconds = Some(RETRY_HISTORY);
        refusal
    }
}

impl From<StoreError> for ErrorReply {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Closed => {
                tracing::warn!(error = %chain(&error), "the store is unavailable");
                let (message, hint) = match without_majority(&error) {
                    None => (
                        "the store is unavailable; nothing was done".to_owned(),
                        None,
                    ),
                    Some(why) => (
                        format!("{why}: nothing was done"),
                        Some(
                            "the cluster is read-only at the moment; see `bunraku cluster status`"
                                .to_owned(),
                        ),
                    ),
                };
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ProblemCode::Unavailable,
                    message,
                    hint,
                )
            }
            StoreError::OutcomeUnknown(_) => {
                tracing::warn!(error = %chain(&error), "the outcome of a write is unknown");
                let hint = Some("check the result before you try again".to_owned());
                let message = error.to_string();
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ProblemCode::Unavailable,
                    message,
                    hint,
                )
            }
            StoreError::Full(_) => {
                tracing::warn!(error = %chain(&error), "a write was refused: no space");
                let mut refusal = Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ProblemCode::Unavailable,
                    error.to_string(),
                    Some(FULL_HINT.to_owned()),
                );
                refusal.body.retry_after_seconds = Some(RETRY_WHEN_FULL);
                refusal
            }
            StoreError::Contended { .. } => {
                tracing::warn!(error = %chain(&error), "a write lost to other writers every time");
                let hint = Some("try again".to_owned());
                let (status, code) = (StatusCode::TOO_MANY_REQUESTS, ProblemCode::Busy);
                Self::new(status, code, error.to_string(), hint)
            }
            StoreError::TooLarge { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                ProblemCode::TooLarge,
                error.to_string(),
                None,
            ),
            error => {
                tracing::error!(error = %chain(&error), "the store failed");
                Self::internal()
            }
        }
    }
}

/// Returns the details if the store has no majority. That deserves a clearer message than a
/// generic failure.
fn without_majority(error: &StoreError) -> Option<&NoMajority> {
    match error {
        StoreError::Unavailable(source) => source.downcast_ref(),
        _ => None,
    }
}

impl ErrorReply {
    pub(crate) fn internal() -> Self {
        let hint = Some("see the server's log for details".to_owned());
        let message = "internal server error".to_owned();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ProblemCode::Internal,
            message,
            hint,
        )
    }
}

impl IntoResponse for ErrorReply {
    fn into_response(self) -> Response {
        let retry_after = self.body.retry_after_seconds;
        let mut response = (self.status, Json(Problem { error: self.body })).into_response();
        if let Some(seconds) = retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
