//! Error replies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    pub error: ProblemBody,
}

/// What failed, why, and what to do next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    pub code: ProblemCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// For a refused gap: the expected number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
    /// For a caller that is over its budget: when to try again, as in the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

/// The kinds of errors, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The request is invalid.
    Invalid,
    /// No certificate, or one that is revoked or expired.
    Unauthenticated,
    /// The certificate's role does not permit it.
    Forbidden,
    NotFound,
    /// It was changed in the meantime, or its state does not allow the request.
    Conflict,
    TooLarge,
    /// Too many requests. Try again later.
    Busy,
    /// The store is unavailable. Nothing was changed, or the outcome is unknown.
    Unavailable,
    /// An internal error. See the server's log.
    Internal,
}
