//! The file: created once, checked at every open.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::translate;
use crate::StoreError;
use crate::history::HistoryError;

/// "Bnrh": marks the file as ours.
const APPLICATION: i64 = 0x426e_7268;
/// The version of the tables that this program writes.
const SCHEMA_VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE periods(part TEXT NOT NULL, day INTEGER NOT NULL, PRIMARY KEY(part, day)) WITHOUT ROWID;
    CREATE TABLE settings(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
";

/// Opens the file in a directory. Returns its path, the connection of the writer, and the lock.
pub(super) fn open(directory: &Path) -> Result<(PathBuf, Connection, File), HistoryError> {
    let failed = |doing: &str, source| StoreError::Io {
        doing: format!("{doing} {}", directory.display()),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| failed("create", source))?;
    let lock = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join("lock"))
        .map_err(|source| failed("lock", source))?;
    if lock.try_lock().is_err() {
        return Err(StoreError::Locked {
            path: directory.to_owned(),
            owner: "another process".to_owned(),
        }
        .into());
    }
    let path = directory.join("history.sqlite");
    // SQLite gives its log the same permissions as the file.
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| failed("create the history in", source))?;
    let writer = connect(&path).map_err(|error| translate(&path, error))?;
    prepare(&path, &writer)?;
    Ok((path, writer, lock))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Deleted data does not have to be overwritten: dropping a period must be cheap.
    connection.pragma_update(None, "secure_delete", false)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

pub(super) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    Ok(connection)
}

/// Creates the tables in a new file, and checks those of an old one.
fn prepare(path: &Path, writer: &Connection) -> Result<(), HistoryError> {
    let number = |name: &str| writer.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    let checked = number("application_id").and_then(|application: i64| {
        let version: i64 = number("user_version")?;
        Ok((application, version))
    });
    let fail = |error| translate(path, error);
    match checked.map_err(fail)? {
        (0, 0) => {
            let create = format!(
                "BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; \
                 PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            );
            writer.execute_batch(&create).map_err(fail)
        }
        (APPLICATION, SCHEMA_VERSION) => Ok(()),
        (APPLICATION, found) => Err(HistoryError::NewerSchema {
            backend: path.display().to_string(),
            found,
            supported: SCHEMA_VERSION,
        }),
        _ => Err(StoreError::Damaged {
            path: path.to_owned(),
            what: "it is not a Bunraku history".to_owned(),
        }
        .into()),
    }
}
