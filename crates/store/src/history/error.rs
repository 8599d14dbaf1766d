//! Errors of history.

use crate::StoreError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The error of all operations. Every operation can be repeated, so there is no unknown outcome.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The backend does not answer, or not in time. A later retry may help.
    #[error("history is unavailable ({backend})")]
    Unavailable {
        backend: String,
        #[source]
        source: Source,
    },

    /// The backend has no room for new data.
    #[error("history is full ({backend})")]
    Full {
        backend: String,
        #[source]
        source: Source,
    },

    /// All connections are in use.
    #[error("history is busy ({backend}): every connection is in use")]
    Busy { backend: String },

    /// The fleet uses a backend that this server is not configured for.
    #[error("this server is not configured for the history backend `{0}`")]
    NotConfigured(String),

    /// A later version of this program changed the tables.
    #[error(
        "the history in {backend} has schema version {found}; this version supports versions up to {supported}"
    )]
    NewerSchema {
        backend: String,
        found: i64,
        supported: i64,
    },

    /// The backend answered with something that was never written, or refused a statement.
    #[error("history failed ({backend})")]
    Failed {
        backend: String,
        #[source]
        source: Source,
    },

    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HistoryError {
    /// Returns whether a retry may help without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Full { .. } | Self::Busy { .. } => true,
            Self::Store(error) => {
                matches!(error, StoreError::Unavailable(_) | StoreError::Full(_))
            }
            Self::NotConfigured(_) | Self::NewerSchema { .. } | Self::Failed { .. } => false,
        }
    }
}
