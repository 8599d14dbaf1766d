//! What SQLite says, in the store's words.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::StoreError;

/// Something below the store's own rules went wrong.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// A row is not what was written.
    Damaged(String),
}

/// The outer error stops a whole group; the inner one is only this request's
/// answer, and is given before anything of the request was written.
pub(super) type Performed<T> = Result<Result<T, StoreError>, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Failure {
    /// The write was handed to the disk, and the disk did not say that it has it.
    ///
    /// Any other failure leaves the write-ahead log without the frame that would
    /// make the transaction count.
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
            // Not from the library but from reading a column: a type or a number
            // that was never written.
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
