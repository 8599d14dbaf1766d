//! Service errors, in terms that the API can pass on.

use std::time::Duration;

use bunraku_store::StoreError;
use bunraku_store::blobs::BlobError;
use bunraku_store::history::HistoryError;

/// Any failure of a service.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The request is invalid.
    #[error("{message}")]
    Invalid {
        message: String,
        hint: Option<String>,
    },

    #[error("{what} does not exist")]
    NotFound { what: String, hint: Option<String> },

    /// The current state does not allow the request.
    #[error("{message}")]
    Conflict {
        message: String,
        hint: Option<String>,
    },

    #[error("{message}")]
    Forbidden {
        message: String,
        hint: Option<String>,
    },

    #[error("{what} has {size} bytes, which exceeds the limit of {limit}")]
    TooLarge {
        what: String,
        size: u64,
        limit: u64,
        hint: Option<String>,
    },

    /// Events between the stored ones and the new ones are missing.
    #[error("expected event {wanted}")]
    Gap { wanted: u64 },

    /// Too much work is already waiting.
    #[error("{message}")]
    Busy { message: String },

    /// A node is over its budget.
    #[error("{message}")]
    OverBudget {
        message: String,
        retry_after: Duration,
    },

    /// Something that the service depends on does not answer. Nothing was done.
    #[error("{message}")]
    Unavailable { message: String, hint: String },

    #[error("the store failed")]
    Store(#[from] StoreError),

    /// History failed, and the state store did not.
    #[error(transparent)]
    History(HistoryError),

    /// A stored document is not what a service wrote.
    #[error("cannot read the document at `{key}`")]
    Document {
        key: String,
        #[source]
        source: serde_json::Error,
    },

    #[error("{what}")]
    Internal {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<HistoryError> for ServiceError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Store(error) => Self::Store(error),
            error => Self::History(error),
        }
    }
}

impl ServiceError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            hint: None,
        }
    }

    pub fn conflict(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Conflict {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    pub fn no_such_node(node: &bunraku_model::NodeName) -> Self {
        Self::NotFound {
            what: format!("node `{node}`"),
            hint: Some("list the nodes with `bunraku node list`".to_owned()),
        }
    }

    /// The error for unusable content: a failure of the store, or an internal one.
    pub fn content(what: &'static str, error: BlobError) -> Self {
        match error {
            BlobError::Store(error) => Self::Store(error),
            error if error.is_place_failure() => Self::Unavailable {
                message: format!("{what}: {}", chain(&error)),
                hint: "nothing was lost; see `bunraku store status`, and try again".to_owned(),
            },
            error => Self::internal(what, error),
        }
    }

    /// Returns whether a watch that failed with this can be opened again.
    pub fn is_lost_watch(&self) -> bool {
        self.is_history_outage()
            || matches!(
                self,
                Self::Store(
                    StoreError::Compacted { .. }
                        | StoreError::Unavailable(_)
                        | StoreError::OutcomeUnknown(_)
                )
            )
    }

    /// Returns whether history does not answer. Everything else works.
    pub fn is_history_outage(&self) -> bool {
        matches!(self, Self::History(error) if error.is_temporary())
    }

    pub fn internal(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Internal {
            what: what.into(),
            source: source.into(),
        }
    }
}

pub use bunraku_model::error_chain as chain;
