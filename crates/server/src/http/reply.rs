//! Converts a service's error to a status and a problem document.

use axum::Json;
use axum::response::{IntoResponse, Response};
use bunraku_store::{NoMajority, StoreError};
use bunraku_wire::api::{Problem, ProblemBody, ProblemCode};
use http::StatusCode;

use bunraku_control::ServiceError;
use bunraku_control::error::chain;

/// An error reply.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: ProblemBody,
}

impl Refusal {
    fn new(status: StatusCode, code: ProblemCode, message: String, hint: Option<String>) -> Self {
        Self {
            status,
            body: ProblemBody {
                code,
                message,
                hint,
                wanted: None,
            },
        }
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

    pub(crate) fn invalid(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ProblemCode::Invalid, message, None)
    }

    pub(crate) fn not_found(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, ProblemCode::NotFound, message, None)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "this path does not take that method".to_owned();
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            ProblemCode::Invalid,
            message,
            None,
        )
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than the {limit} bytes that are allowed here");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            ProblemCode::TooLarge,
            message,
            None,
        )
    }

    pub(crate) fn unsatisfiable_range(size: u64) -> Self {
        let message = format!("the range is not within the {size} bytes of the content");
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

impl From<ServiceError> for Refusal {
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
                let hint = Some("send on from there".to_owned());
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
            ServiceError::Busy { message } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                ProblemCode::Busy,
                message,
                None,
            ),
            ServiceError::Store(error) => error.into(),
            ServiceError::Document { .. } | ServiceError::Internal { .. } => {
                tracing::error!(error = %chain(&error), "a request failed");
                Self::internal()
            }
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Closed => {
                tracing::warn!(error = %chain(&error), "the store is not available");
                let (message, hint) = match without_majority(&error) {
                    None => ("the store is not available; nothing was done".to_owned(), None),
                    Some(why) => (
                        format!("{why}: nothing was done"),
                        Some("nothing can be changed now, looking still works; see `bunraku cluster status`".to_owned()),
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
                let hint = Some("look before you try again".to_owned());
                let message = error.to_string();
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    ProblemCode::Unavailable,
                    message,
                    hint,
                )
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

impl Refusal {
    fn internal() -> Self {
        let hint = Some("the server's log has more".to_owned());
        let message = "the server could not do it".to_owned();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ProblemCode::Internal,
            message,
            hint,
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(Problem { error: self.body })).into_response()
    }
}
