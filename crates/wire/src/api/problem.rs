//! How the server says no.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every reply that is not a success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    pub error: ProblemBody,
}

/// What, why, and what to do next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    pub code: ProblemCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Of a refused gap: the number that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
}

/// The kinds of refusal that a program may want to tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The request makes no sense.
    Invalid,
    /// No certificate, or one that is revoked or expired.
    Unauthenticated,
    /// The certificate's role does not reach this.
    Forbidden,
    NotFound,
    /// Somebody else changed it meanwhile, or the state does not allow it.
    Conflict,
    TooLarge,
    /// Too many at once: come back later.
    Busy,
    /// The store is away. Nothing was done, or it is not known whether it was.
    Unavailable,
    /// A defect or a broken disk: the server's log has more.
    Internal,
}
