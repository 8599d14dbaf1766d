//! Rows as stored on disk, each with a checksum.
//!
//! SQLite verifies its log but not its pages. A flipped bit in a value would be returned as the
//! value. The checksum over everything in the row turns it into an error.

use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use super::failure::Failure;
use crate::{Change, KeyValue, LeaseId, Revision};

/// A history row's id is its revision followed by its place within the revision.
const ORDINAL_BITS: u32 = 20;
/// The maximum number of changes in one revision.
pub(super) const MAX_CHANGES: usize = 1 << ORDINAL_BITS;

pub(super) fn history_id(revision: u64, ordinal: usize) -> i64 {
    signed((revision << ORDINAL_BITS) | ordinal as u64)
}

pub(super) fn revision_of(id: i64) -> u64 {
    unsigned(id) >> ORDINAL_BITS
}

/// Reinterprets the bits, so that a stored number is read back unchanged.
pub(super) fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

/// Returns the prefix as bounds of a query: from the first, up to but excluding the second.
pub(super) fn bounds(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // UTF-8 has no byte 0xff, so the last byte can always be incremented ...
        Some(last) => *last += 1,
        // ... and 0xff sorts after every key.
        None => end.push(0xff),
    }
    (prefix.as_bytes().to_vec(), end)
}

/// Returns the checksum over everything in a row. `place` is the row's position: the revision of a
/// key, the id of a piece of history.
fn checksum(place: u64, key: &[u8], value: Option<&[u8]>, numbers: [i64; 3]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(&[u8::from(value.is_some())]);
    hasher.update(value.unwrap_or_default());
    i64::from(hasher.finalize())
}

fn lease_number(lease: Option<LeaseId>) -> i64 {
    lease.map_or(0, |lease| lease.0)
}

fn numbers(entry: &KeyValue) -> [i64; 3] {
    [
        signed(entry.created.0),
        signed(entry.version),
        lease_number(entry.lease),
    ]
}

pub(super) const KEY_COLUMNS: &str = "key, value, created, version, lease, checksum, modified";
/// Selects [`KEY_COLUMNS`] of one key. A constant, because every write uses it.
const GET_KEY: &str =
    "SELECT key, value, created, version, lease, checksum, modified FROM keys WHERE key = ?1";
pub(super) const HISTORY_COLUMNS: &str = "key, value, created, version, lease, checksum, id";

/// Reads the columns of [`KEY_COLUMNS`] and verifies them.
pub(super) fn read_key(row: &Row<'_>) -> Result<KeyValue, Failure> {
    let modified = unsigned(row.get(6)?);
    match read_row(row, modified, modified)? {
        Change::Put(entry) => Ok(entry),
        Change::Delete { key } => Err(Failure::Damaged(format!("the key {key:?} has no value"))),
    }
}

/// Reads the columns of [`HISTORY_COLUMNS`] and verifies them.
pub(super) fn read_history(row: &Row<'_>) -> Result<(u64, Change), Failure> {
    let id: i64 = row.get(6)?;
    let revision = revision_of(id);
    Ok((revision, read_row(row, unsigned(id), revision)?))
}

fn read_row(row: &Row<'_>, place: u64, modified: u64) -> Result<Change, Failure> {
    let key = blob(row, 0)?.ok_or_else(|| Failure::Damaged("a row has no key".to_owned()))?;
    let value = blob(row, 1)?;
    let numbers: [i64; 3] = [
        row.get(2)?,
        row.get(3)?,
        row.get::<_, Option<i64>>(4)?.unwrap_or(0),
    ];
    if checksum(place, key, value, numbers) != row.get::<_, i64>(5)? {
        return Err(Failure::Damaged(format!(
            "the checksum of {:?} at revision {modified} does not match",
            String::from_utf8_lossy(key)
        )));
    }
    let key = String::from_utf8(key.to_vec())
        .map_err(|_| Failure::Damaged(format!("a key of revision {modified} is not UTF-8")))?;
    Ok(match value {
        None => Change::Delete { key },
        Some(value) => Change::Put(KeyValue {
            key,
            value: Bytes::copy_from_slice(value),
            created: Revision(unsigned(numbers[0])),
            modified: Revision(modified),
            version: unsigned(numbers[1]),
            lease: (numbers[2] != 0).then_some(LeaseId(numbers[2])),
        }),
    })
}

fn blob<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a [u8]>, Failure> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(bytes) => Ok(Some(bytes)),
        other => Err(Failure::Damaged(format!(
            "a column that holds bytes holds {}",
            other.data_type()
        ))),
    }
}

pub(super) fn get_key(connection: &Connection, key: &str) -> Result<Option<KeyValue>, Failure> {
    let mut statement = connection.prepare_cached(GET_KEY)?;
    let mut rows = statement.query([key.as_bytes()])?;
    rows.next()?.map(read_key).transpose()
}

pub(super) fn put_key(connection: &Connection, entry: &KeyValue) -> Result<(), Failure> {
    let value: &[u8] = &entry.value;
    let checksum = checksum(
        entry.modified.0,
        entry.key.as_bytes(),
        Some(value),
        numbers(entry),
    );
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO keys(key, value, created, modified, version, lease, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            entry.key.as_bytes(),
            value,
            signed(entry.created.0),
            signed(entry.modified.0),
            signed(entry.version),
            entry.lease.map(|lease| lease.0),
            checksum,
        ])?;
    Ok(())
}

pub(super) fn put_history(
    connection: &Connection,
    revision: u64,
    ordinal: usize,
    change: &Change,
) -> Result<(), Failure> {
    let id = history_id(revision, ordinal);
    let mut statement: CachedStatement<'_> = connection.prepare_cached(
        "INSERT INTO history(id, key, value, created, version, lease, checksum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    match change {
        Change::Put(entry) => {
            let value: &[u8] = &entry.value;
            let numbers = numbers(entry);
            statement.execute(params![
                id,
                entry.key.as_bytes(),
                value,
                numbers[0],
                numbers[1],
                entry.lease.map(|lease| lease.0),
                checksum(unsigned(id), entry.key.as_bytes(), Some(value), numbers),
            ])?;
        }
        Change::Delete { key } => {
            statement.execute(params![
                id,
                key.as_bytes(),
                None::<&[u8]>,
                0,
                0,
                None::<i64>,
                checksum(unsigned(id), key.as_bytes(), None, [0; 3]),
            ])?;
        }
    }
    Ok(())
}

/// Returns the newest revision. History always keeps at least that one.
pub(super) fn newest_revision(connection: &Connection) -> Result<u64, Failure> {
    let id: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM history")?
        .query_row([], |row| row.get(0))?;
    Ok(id.map_or(0, revision_of))
}

/// Returns a named value that is not a key.
pub(super) fn get_meta(connection: &Connection, name: &str) -> Result<String, Failure> {
    let row: Option<(String, i64)> = connection
        .prepare_cached("SELECT value, checksum FROM meta WHERE name = ?1")?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match row {
        Some((value, sum)) if sum == meta_checksum(name, &value) => Ok(value),
        Some(_) => Err(Failure::Damaged(format!(
            "the checksum of {name} does not match"
        ))),
        None => Err(Failure::Damaged(format!("{name} is missing"))),
    }
}

pub(super) fn put_meta(connection: &Connection, name: &str, value: &str) -> Result<(), Failure> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta(name, value, checksum) VALUES (?1, ?2, ?3)")?
        .execute(params![name, value, meta_checksum(name, value)])?;
    Ok(())
}

fn meta_checksum(name: &str, value: &str) -> i64 {
    checksum(0, name.as_bytes(), Some(value.as_bytes()), [0; 3])
}

/// Returns the oldest revision whose history is complete.
pub(super) fn oldest_revision(connection: &Connection) -> Result<u64, Failure> {
    let text = get_meta(connection, "oldest")?;
    text.parse()
        .map_err(|_| Failure::Damaged(format!("the oldest revision is {text:?}")))
}

pub(super) fn put_oldest_revision(connection: &Connection, oldest: u64) -> Result<(), Failure> {
    put_meta(connection, "oldest", &oldest.to_string())
}

/// Writes a lease: id, granted time and end since boot, in milliseconds.
pub(super) fn put_lease(
    connection: &Connection,
    id: LeaseId,
    granted: u64,
    end: u64,
) -> Result<(), Failure> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO leases(id, granted, end, checksum) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            id.0,
            signed(granted),
            signed(end),
            lease_checksum(id, signed(granted), signed(end))
        ])?;
    Ok(())
}

pub(super) fn read_leases(connection: &Connection) -> Result<Vec<(LeaseId, u64, u64)>, Failure> {
    let mut statement = connection.prepare("SELECT id, granted, end, checksum FROM leases")?;
    let mut rows = statement.query([])?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, granted, end) = (LeaseId(row.get(0)?), row.get(1)?, row.get(2)?);
        if lease_checksum(id, granted, end) != row.get::<_, i64>(3)? {
            return Err(Failure::Damaged(format!(
                "the checksum of lease {id} does not match"
            )));
        }
        leases.push((id, unsigned(granted), unsigned(end)));
    }
    Ok(leases)
}

fn lease_checksum(id: LeaseId, granted: i64, end: i64) -> i64 {
    checksum(unsigned(id.0), b"lease", None, [granted, end, 0])
}
