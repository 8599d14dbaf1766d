//! Translates SQLite's errors into store errors.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::StoreError;

/// A failure below the level of the store's own rules.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// A row differs from its written content.
    Damaged(String),
}

/// The result of one request in a group. The outer error stops the whole group. The inner error is
/// only this request's answer, and is returned before the request writes anything.
pub(super) type RequestResult<T> = Result<Result<T, StoreError>, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Failure {
    /// Returns whether the write was handed to the disk and the disk did not confirm it.
    ///
    /// After any other failure, the write-ahead log lacks the frame that commits the transaction.
    pub(super) fn leaves_outcome_unknown(&self) -> bool {
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => matches!(
                error.extended_code,
                ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC
            ),
            _ => false,
        }
    }

    pub(super) fn into_store_error(self, path: &Path, doing: &str) -> StoreError {
        let error = match self {
            Self::Damaged(what) => {
                return StoreError::Damaged {
                    path: path.to_owned(),
                    what,
                };
            }
            Self::Sqlite(error) => error,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged {
                path: path.to_owned(),
                what: error.to_string(),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Unavailable(Box::new(error))
            }
            Some(ErrorCode::DiskFull) => io_error(io::ErrorKind::StorageFull, doing, error),
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                io_error(io::ErrorKind::PermissionDenied, doing, error)
            }
            Some(_) => io_error(io::ErrorKind::Other, doing, error),
            // The error comes from reading a column, not from the library: its type or number was
            // never written.
            None => StoreError::Damaged {
                path: path.to_owned(),
                what: error.to_string(),
            },
        }
    }
}

fn io_error(kind: io::ErrorKind, doing: &str, error: rusqlite::Error) -> StoreError {
    StoreError::Io {
        doing: doing.to_owned(),
        source: io::Error::new(kind, error),
    }
}
