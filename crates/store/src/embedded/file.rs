//! The database file: created once, checked at every open.
//!
//! The checks run in this order. Nothing is written to the file before all of them pass, so that a
//! person who has to repair it finds it unchanged.
//!
//! 1. It is a complete SQLite file of ours, in a known format.
//! 2. Up to a size (`verify_up_to_bytes`): SQLite's own check of its trees, then every row's
//!    checksum. Checks only after unclean shutdowns would miss decay while the store is closed; a
//!    check without a limit would make a start take minutes. Above the size, a damaged row is found
//!    when it is read.
//! 3. It has everything that was acknowledged (see `witness`).

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::failure::Failure;
use super::options::EmbeddedOptions;
use super::rows;
use super::witness::Witness;
use crate::StoreError;

/// The format that this version writes. Raise it with every change that an older
/// version must not touch.
const FORMAT: u64 = 1;
/// "Bnrk": marks the file as ours.
const APPLICATION: i64 = 0x426e_726b;
pub(super) const PAGE_BYTES: i64 = 4096;
/// Pages beyond the quota, so that a full store can still end leases and delete keys, which writes
/// history.
const RESERVE_PAGES: i64 = 1024;
const MAGIC: &[u8] = b"SQLite format 3\0";

const SCHEMA: [&str; 5] = [
    "CREATE TABLE history(id INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB, \
     created INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER, checksum INTEGER NOT NULL)",
    "CREATE TABLE keys(key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL, \
     created INTEGER NOT NULL, modified INTEGER NOT NULL, version INTEGER NOT NULL, \
     lease INTEGER, checksum INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX keys_by_lease ON keys(lease) WHERE lease IS NOT NULL",
    "CREATE TABLE leases(id INTEGER PRIMARY KEY, granted INTEGER NOT NULL, end INTEGER NOT NULL, \
     checksum INTEGER NOT NULL)",
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, \
     checksum INTEGER NOT NULL) WITHOUT ROWID",
];

/// The writer's connection, and the state of the store.
pub(super) struct OpenedDatabase {
    pub(super) connection: Connection,
    pub(super) witness: Witness,
    pub(super) revision: u64,
    pub(super) oldest: u64,
}

pub(super) fn database_path(directory: &Path) -> PathBuf {
    directory.join("store.sqlite")
}

/// Creates the directory if needed, and makes it durable.
pub(super) fn make_directory(directory: &Path) -> Result<(), StoreError> {
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| StoreError::Io {
            doing: format!("create {}", directory.display()),
            source,
        })?;
    for ancestor in directory.ancestors().skip(1) {
        let ancestor = match ancestor {
            empty if empty.as_os_str().is_empty() => Path::new("."),
            other => other,
        };
        // A parent that we cannot read was not created by us.
        let _ = sync_directory(ancestor);
    }
    Ok(())
}

/// Opens the file. The caller holds the lock.
pub(super) fn open(
    directory: &Path,
    options: &EmbeddedOptions,
) -> Result<OpenedDatabase, StoreError> {
    let path = database_path(directory);
    let acknowledged = Witness::read(directory)?;
    let fail = |failure: Failure| failure.into_store_error(&path, "open the store");
    if !path.exists() {
        if acknowledged.is_some() {
            return Err(damaged(&path, "it is missing".to_owned()));
        }
        create(directory, &path)?;
    }
    check_header(&path)?;
    let connection = connect(&path).map_err(fail)?;
    check_format(&connection, &path)?;
    check_schema(&connection).map_err(fail)?;
    verify(&connection, &path, options.verify_up_to_bytes)?;
    let revision = rows::newest_revision(&connection).map_err(fail)?;
    let oldest = rows::oldest_revision(&connection).map_err(fail)?;
    if let Some(acknowledged) = acknowledged
        && revision < acknowledged
    {
        return Err(damaged(
            &path,
            format!("it ends with revision {revision}, but {acknowledged} was acknowledged"),
        ));
    }
    prepare(&connection, quota(options)).map_err(fail)?;
    let witness = Witness::open(directory, revision)?;
    sync_directory(directory)?;
    Ok(OpenedDatabase {
        connection,
        witness,
        revision,
        oldest,
    })
}

/// Opens a connection for reading. The writer must be open.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    Ok(connection)
}

fn connect(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    // Until all checks have passed, closing must not merge a damaged log into the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Creates the file under another name, then renames it, so that an incomplete store never exists.
fn create(directory: &Path, path: &Path) -> Result<(), StoreError> {
    let fail = |source| StoreError::Io {
        doing: format!("create {}", path.display()),
        source,
    };
    let new = directory.join("store.sqlite.new");
    for left_over in ["", "-journal", "-wal", "-shm"] {
        let mut name = new.clone().into_os_string();
        name.push(left_over);
        match std::fs::remove_file(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
    }
    // SQLite gives its log the same permissions as the file.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(fail)?;
    write_schema(&new).map_err(|failure| failure.into_store_error(&new, "create the store"))?;
    file.sync_all().map_err(fail)?;
    bunraku_files::move_into_place(&new, path).map_err(fail)
}

fn write_schema(path: &Path) -> Result<(), Failure> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction()?;
    for statement in SCHEMA {
        transaction.execute_batch(statement)?;
    }
    rows::put_oldest_revision(&transaction, 1)?;
    rows::put_meta(&transaction, "boot", "")?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", FORMAT as i64)?;
    transaction.commit()?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error.into())
}

/// Checks the bare file. SQLite treats an empty file as a new database, and treats a truncated file
/// as complete until the missing part is read.
///
/// While a log exists, the file may be shorter than its header says: the previous process died
/// while it merged the log into the file.
fn check_header(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io {
        doing: format!("read {}", path.display()),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut header = Vec::new();
    file.take(100).read_to_end(&mut header).map_err(failed)?;
    if header.len() < 100 || !header.starts_with(MAGIC) {
        return Err(damaged(path, "it is not an SQLite file".to_owned()));
    }
    let log = path.with_extension("sqlite-wal");
    if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        return Ok(());
    }
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let expected = u64::from(pages) * PAGE_BYTES.unsigned_abs();
    if length != expected {
        return Err(damaged(
            path,
            format!("it has {length} bytes, expected {expected}"),
        ));
    }
    Ok(())
}

fn check_format(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let number = |name: &str| {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0))
            .map_err(|error| Failure::from(error).into_store_error(path, "open the store"))
    };
    if number("application_id")? != APPLICATION {
        return Err(damaged(path, "it is not a Bunraku store".to_owned()));
    }
    match u64::try_from(number("user_version")?) {
        Ok(FORMAT) => Ok(()),
        Ok(found) if found > FORMAT => Err(StoreError::NewerFormat {
            path: path.to_owned(),
            found,
            supported: FORMAT,
        }),
        _ => Err(damaged(path, "its format number is missing".to_owned())),
    }
}

fn check_schema(connection: &Connection) -> Result<(), Failure> {
    let mut statement =
        connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")?;
    let found = statement
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    if found != SCHEMA {
        return Err(Failure::Damaged(
            "its tables are not those of a Bunraku store".to_owned(),
        ));
    }
    Ok(())
}

fn verify(connection: &Connection, path: &Path, up_to: u64) -> Result<(), StoreError> {
    let fail = |failure: Failure| failure.into_store_error(path, "verify the store");
    let pages: i64 = connection
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .map_err(|error| fail(error.into()))?;
    if (pages * PAGE_BYTES).unsigned_abs() > up_to {
        tracing::info!(path = %path.display(), pages, "large store: verified as it is read");
        return Ok(());
    }
    verify_trees(connection).map_err(fail)?;
    verify_rows(connection).map_err(fail)
}

fn verify_trees(connection: &Connection) -> Result<(), Failure> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(Failure::Damaged(found.replace('\n', " ")));
    }
    Ok(())
}

fn verify_rows(connection: &Connection) -> Result<(), Failure> {
    let mut statement = connection.prepare(&format!("SELECT {} FROM keys", rows::KEY_COLUMNS))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        rows::read_key(row)?;
    }
    let mut statement =
        connection.prepare(&format!("SELECT {} FROM history", rows::HISTORY_COLUMNS))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        rows::read_history(row)?;
    }
    rows::read_leases(connection)?;
    rows::get_meta(connection, "boot")?;
    Ok(())
}

/// Prepares the checked file. This is the first step that writes to it.
fn prepare(connection: &Connection, quota_bytes: i64) -> Result<(), Failure> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    let pages = quota_bytes / PAGE_BYTES + RESERVE_PAGES;
    connection.pragma_update(None, "max_page_count", pages)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Start with an empty log, so that its size stays bounded across restarts.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// Returns the quota, limited to the size that SQLite can hold.
pub(super) fn quota(options: &EmbeddedOptions) -> i64 {
    let most = (0xffff_fffe - RESERVE_PAGES) * PAGE_BYTES;
    i64::try_from(options.quota_bytes)
        .unwrap_or(most)
        .clamp(1, most)
}

fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    bunraku_files::sync_directory(directory).map_err(|source| StoreError::Io {
        doing: format!("sync {}", directory.display()),
        source,
    })
}

fn damaged(path: &Path, what: String) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::{EmbeddedOptions, open};

    /// No other test shows this: after a kill the kernel still has the data, only a power failure
    /// loses it.
    #[test]
    fn every_commit_waits_for_the_disk() {
        let directory = tempfile::tempdir().expect("a directory");
        let opened = open(directory.path(), &EmbeddedOptions::default()).expect("it opens");
        let synchronous: i64 = opened
            .connection
            .query_row("PRAGMA synchronous", [], |row| row.get(0))
            .expect("an answer");
        let journal: String = opened
            .connection
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .expect("an answer");
        assert_eq!((synchronous, journal.as_str()), (2, "wal"), "FULL is 2");
    }
}
