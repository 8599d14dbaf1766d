//! Errors of store operations.

use std::path::PathBuf;

use crate::{LeaseId, Revision};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The error of all operations, so that callers handle the same few cases everywhere.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done. A later retry may help.
    #[error("the store is unavailable")]
    Unavailable(#[source] Source),

    /// The store refuses to add data until space is freed. Nothing was done. Deletions work.
    #[error("the datastore is full: {0}; nothing was done")]
    Full(String),

    /// The connection broke after the request was sent: it may have been done.
    #[error("the store did not confirm the write; its outcome is unknown")]
    OutcomeUnknown(#[source] Source),

    /// Other writers changed the same keys between every read and write. Nothing was done.
    #[error("the same keys were changed by others {attempts} times in a row; nothing was done")]
    Contended { attempts: u32 },

    /// The history before `oldest` is gone: read everything again, then continue to watch.
    #[error("the history at revision {wanted} no longer exists; the oldest revision is {oldest}")]
    Compacted { wanted: Revision, oldest: Revision },

    #[error("lease {0} does not exist or has expired")]
    LeaseNotFound(LeaseId),

    /// The request exceeds a limit of the store. It was refused before anything was done.
    #[error("{what} is {size}, which exceeds the store's limit of {limit}")]
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
    #[error("{} is corrupt: {what}", path.display())]
    Damaged { path: PathBuf, what: String },

    /// The files were written by a later version.
    #[error("{} has format {found}; this version supports formats up to {supported}", path.display())]
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
