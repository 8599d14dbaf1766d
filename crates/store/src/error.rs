//! Errors of store operations.

use std::path::PathBuf;

use crate::{LeaseId, Revision};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The error of all operations, so that callers handle the same few cases everywhere.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done. A later retry may help.
    #[error("the store is not available")]
    Unavailable(#[source] Source),

    /// The connection broke after the request was sent: it may have been done.
    #[error("the store did not say whether the write was done")]
    OutcomeUnknown(#[source] Source),

    /// The history before `oldest` is gone: read everything again, then continue to watch.
    #[error("the history at revision {wanted} is gone; the oldest that is left is {oldest}")]
    Compacted { wanted: Revision, oldest: Revision },

    #[error("lease {0} does not exist or has ended")]
    LeaseNotFound(LeaseId),

    /// The request exceeds a limit of the store. It was refused before anything was done.
    #[error("{what} is {size}, and the store takes at most {limit}")]
    TooLarge {
        what: &'static str,
        size: usize,
        limit: usize,
    },

    /// A key, a prefix or a request that is not valid.
    #[error("{0}")]
    Invalid(String),

    /// Another process has the directory open.
    #[error("{} is in use by {owner}", path.display())]
    Locked { path: PathBuf, owner: String },

    /// The files differ from the written data: report it and change nothing.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },

    /// The files were written by a later version.
    #[error("{} has format {found}, and this version reads up to {supported}", path.display())]
    NewerFormat {
        path: PathBuf,
        found: u64,
        supported: u64,
    },

    /// The disk or the operating system refused.
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },

    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
