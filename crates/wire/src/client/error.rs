//! Errors of requests, with hints on what to do.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{BoxError, ServerAddress, TlsCause, TlsRefusal};

/// The reason why a request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot reach any server: {}", list(failures))]
    NoServer { failures: Vec<ServerFailure> },
    #[error("{server}: {}", refusal.as_str())]
    Refused {
        server: ServerAddress,
        refusal: TlsRefusal,
        #[source]
        source: TlsCause,
    },
    #[error("{server}: {what} within {after:?}")]
    TimedOut {
        server: ServerAddress,
        what: &'static str,
        after: Duration,
    },
    #[error("{}", problem.message)]
    Api {
        status: u16,
        problem: Box<Problem>,
        server: ServerAddress,
    },
    #[error("{server} sent an invalid reply: {why}")]
    BadReply {
        server: ServerAddress,
        why: &'static str,
        #[source]
        source: Option<BoxError>,
    },
    /// The request was sent, and it is unknown whether the server executed it.
    #[error("lost the connection to {server} before the reply was complete")]
    Lost {
        server: ServerAddress,
        #[source]
        source: BoxError,
    },
    #[error("cannot encode the request as JSON")]
    Encode(#[source] serde_json::Error),
    #[error("`{0}` is not a path of the API")]
    InvalidPath(String),
    #[error("cannot read the data to send")]
    Upload(#[source] BoxError),
}

/// The server's description of an error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// A code for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// A hint on what to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The number that the server expects instead, if it refused a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
    /// When to try again, if the caller is over its budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct ProblemDocument {
    error: Problem,
}

impl Problem {
    /// Reads an error reply. A reply that is not a problem document still has a status.
    pub(crate) fn from_reply(status: StatusCode, body: &[u8]) -> Self {
        match serde_json::from_slice::<ProblemDocument>(body) {
            Ok(document) => document.error,
            Err(_) => Self {
                code: format!("http_{}", status.as_u16()),
                message: format!("the server answered {status}"),
                hint: None,
                wanted: None,
                retry_after_seconds: None,
            },
        }
    }
}

/// The reason why one server could not be reached.
#[derive(Debug)]
pub struct ServerFailure {
    pub server: ServerAddress,
    pub cause: ConnectError,
}

/// The reason why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot resolve its name: {0}")]
    Lookup(std::io::Error),
    #[error("{0}")]
    Tcp(std::io::Error),
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    #[error("{}", refusal.as_str())]
    Tls {
        refusal: TlsRefusal,
        source: TlsCause,
    },
    #[error("cannot start HTTP: {0}")]
    Http(hyper::Error),
}

fn list(failures: &[ServerFailure]) -> String {
    if failures.is_empty() {
        return "none is configured".to_owned();
    }
    let each: Vec<_> = failures
        .iter()
        .map(|failure| format!("{}: {}", failure.server, failure.cause))
        .collect();
    each.join("; ")
}

impl ClientError {
    /// Returns the error if no server is reachable. If TLS failed on every server, reports
    /// the TLS error.
    pub(crate) fn none_reachable(mut failures: Vec<ServerFailure>) -> Self {
        let all_tls = failures
            .iter()
            .all(|failure| matches!(failure.cause, ConnectError::Tls { .. }));
        match failures.pop() {
            Some(ServerFailure {
                server,
                cause: ConnectError::Tls { refusal, source },
            }) if all_tls => Self::Refused {
                server,
                refusal,
                source,
            },
            last => {
                failures.extend(last);
                Self::NoServer { failures }
            }
        }
    }

    /// Returns a hint on what to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { refusal, .. } => refusal.hint().map(str::to_owned),
            Self::Api { problem, .. } => problem.hint.clone(),
            Self::NoServer { failures } => failures
                .iter()
                .find_map(|failure| match &failure.cause {
                    ConnectError::Tls { refusal, .. } => refusal.hint().map(str::to_owned),
                    _ => None,
                })
                .or_else(|| {
                    Some("check that a server is running and that the address is right".to_owned())
                }),
            _ => None,
        }
    }

    /// Returns `true` if the same request could succeed later without any intervention. A
    /// daemon then tries again; a command line does not.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoServer { .. } | Self::TimedOut { .. } | Self::Lost { .. } => true,
            Self::Api { status, .. } => matches!(status, 408 | 429 | 500 | 502..=504),
            _ => false,
        }
    }

    /// Returns the number that the server expects instead, if it refused a gap.
    pub fn expected_number(&self) -> Option<u64> {
        match self {
            Self::Api { problem, .. } => problem.wanted,
            _ => None,
        }
    }

    /// Returns how long to wait before the next request, if the caller is over its budget.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { problem, .. } => problem.retry_after_seconds.map(Duration::from_secs),
            _ => None,
        }
    }

    /// Returns the status, if a server answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api { status, .. } => Some(*status),
            _ => None,
        }
    }
}
