//! Classifies failed calls: refused, not done, or unknown.
//!
//! The class decides which calls may be repeated. When in doubt, a write's outcome counts as
//! unknown.

use etcd_client::Error;
use tonic::{Code, ConnectError, Status};

use crate::StoreError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The failure of one attempt at one member.
#[derive(Debug)]
pub(super) enum Failure {
    /// The answer is final, regardless of the member.
    Refused(Refusal),
    /// It was certainly not done: safe to repeat elsewhere.
    NotDone(Source),
    /// The request was sent and no answer came.
    Unknown(Source),
}

/// A final answer, before the caller adds details of its request.
#[derive(Debug)]
pub(super) enum Refusal {
    LeaseNotFound,
    Compacted,
    FutureRevision,
    RequestTooLarge,
    TooManyOperations,
    /// The answer is larger than a page may be: request less.
    AnswerTooLarge,
    /// A member reached its quota. The request may have been done nevertheless.
    NoSpace,
    Other(Source),
}

/// The failure of a member, in a form for people.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} failed")]
pub(super) struct MemberFailed {
    pub(super) endpoint: String,
    #[source]
    pub(super) source: Source,
}

/// No answer came within the time limit of one attempt.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(super) struct NoAnswer(pub(super) std::time::Duration);

/// The member's leader was replaced while the request was in progress.
#[derive(Debug, thiserror::Error)]
#[error("the leader changed before an answer came")]
pub(super) struct LeaderChanged;

impl Failure {
    /// Returns whether a retry may help. For calls that are read-only or idempotent.
    pub(super) fn is_mendable(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    pub(super) fn into_source(self) -> Source {
        match self {
            Self::NotDone(source) | Self::Unknown(source) => source,
            Self::Refused(refusal) => refusal.into_source(),
        }
    }

    pub(super) fn at(self, endpoint: &str) -> Self {
        let named = |source| {
            Box::new(MemberFailed {
                endpoint: endpoint.to_owned(),
                source,
            })
        };
        match self {
            Self::NotDone(source) => Self::NotDone(named(source)),
            Self::Unknown(source) => Self::Unknown(named(source)),
            refused => refused,
        }
    }
}

impl Refusal {
    fn into_source(self) -> Source {
        match self {
            Self::Other(source) => source,
            known => format!("{known:?}").into(),
        }
    }

    /// Converts the refusal for calls in which no refusal has a special meaning.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            // No permission, a corrupt member: nothing was done, and an operator must act.
            Self::Other(source) => StoreError::Unavailable(source),
            known => StoreError::Unavailable(format!("etcd refused: {known:?}").into()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => from_status(status),
            Error::LeaseKeepAliveError(_) => Self::Refused(Refusal::LeaseNotFound),
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
                Self::Refused(Refusal::Other(Box::new(error)))
            }
            other => Self::Unknown(Box::new(other)),
        }
    }
}

fn from_status(status: Status) -> Failure {
    if never_left(&status) {
        return Failure::NotDone(Box::new(status));
    }
    let message = status.message();
    // The texts come from etcd's rpctypes. They are stable from 3.4 to 3.6.
    let known = match status.code() {
        Code::NotFound if message.contains("lease not found") => Some(Refusal::LeaseNotFound),
        Code::OutOfRange if message.contains("has been compacted") => Some(Refusal::Compacted),
        Code::OutOfRange if message.contains("future revision") => Some(Refusal::FutureRevision),
        Code::OutOfRange if message.contains("message length too large") => {
            Some(Refusal::AnswerTooLarge)
        }
        Code::InvalidArgument if message.contains("request is too large") => {
            Some(Refusal::RequestTooLarge)
        }
        Code::ResourceExhausted if message.contains("larger than max") => {
            Some(Refusal::RequestTooLarge)
        }
        Code::ResourceExhausted if message.contains("database space exceeded") => {
            Some(Refusal::NoSpace)
        }
        Code::InvalidArgument if message.contains("too many operations") => {
            Some(Refusal::TooManyOperations)
        }
        _ => None,
    };
    if let Some(refusal) = known {
        return Failure::Refused(refusal);
    }
    if refused_before_proposing(&status) {
        return Failure::NotDone(Box::new(status));
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => Failure::Refused(Refusal::Other(Box::new(status))),
        _ => Failure::Unknown(Box::new(status)),
    }
}

/// Returns whether the connection was never made, so that the request was never sent.
fn never_left(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Returns whether the member refused the request before it passed it to the cluster. "leader
/// changed", "server stopped" and "request timed out" are absent on purpose: they also end requests
/// that were already passed on.
fn refused_before_proposing(status: &Status) -> bool {
    let message = status.message();
    message == "etcdserver: no leader" || message == "etcdserver: too many requests"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> String {
        match Failure::from(Error::GRpcStatus(Status::new(code, message))) {
            Failure::Refused(Refusal::Other(_)) => "refused".to_owned(),
            Failure::Refused(known) => format!("{known:?}"),
            Failure::NotDone(_) => "not done".to_owned(),
            Failure::Unknown(_) => "unknown".to_owned(),
        }
    }

    #[test]
    fn what_may_have_been_handed_to_the_cluster_is_unknown() {
        for message in [
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "transport is closing",
        ] {
            assert_eq!(kind(Code::Unavailable, message), "unknown", "{message}");
        }
        assert_eq!(kind(Code::Cancelled, "operation was canceled"), "unknown");
        assert_eq!(kind(Code::DeadlineExceeded, ""), "unknown");
        assert_eq!(kind(Code::Unknown, "raft: stopped"), "unknown");
        assert_eq!(kind(Code::Internal, "h2 protocol error"), "unknown");
    }

    #[test]
    fn what_a_member_refuses_at_the_door_was_not_done() {
        assert_eq!(kind(Code::Unavailable, "etcdserver: no leader"), "not done");
        assert_eq!(
            kind(Code::ResourceExhausted, "etcdserver: too many requests"),
            "not done"
        );
    }

    #[test]
    fn a_full_database_is_a_refusal() {
        assert_eq!(
            kind(
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded"
            ),
            "NoSpace"
        );
    }
}
