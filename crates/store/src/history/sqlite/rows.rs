//! The statements. Each works on the tables of one period; names of tables contain its number.

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};

use crate::history::period::Period;
use crate::history::{
    Appended, EventChunk, FoundRecord, HistoryAppend, HistoryFilter, HistoryPage, HistoryPart,
    HistoryRecord, RecordId,
};

const PARTS: [HistoryPart; 2] = [HistoryPart::Events, HistoryPart::Records];
const COLUMNS: &str = "owner, id, at, version, status, problem, closed, head";

fn name(part: HistoryPart) -> &'static str {
    match part {
        HistoryPart::Events => "events",
        HistoryPart::Records => "records",
    }
}

/// Event numbers are limited to what the tables can hold before they get here.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns the periods that have tables, newest first.
fn periods(tables: &Connection, part: HistoryPart) -> Result<Vec<Period>> {
    let mut statement =
        tables.prepare_cached("SELECT day FROM periods WHERE part = ?1 ORDER BY day DESC")?;
    let days = statement.query_map([name(part)], |row| row.get(0))?;
    days.map(|day| Ok(Period { part, day: day? })).collect()
}

/// Creates the tables of a period.
pub(super) fn ensure(tables: &Connection, period: Period) -> Result<()> {
    let day = period.day;
    let added = tables
        .prepare_cached("INSERT OR IGNORE INTO periods(part, day) VALUES(?1, ?2)")?
        .execute(params![name(period.part), day])?;
    if added == 0 {
        return Ok(());
    }
    tables.execute_batch(&match period.part {
        HistoryPart::Events => format!(
            "CREATE TABLE \"events{day}\"(owner TEXT NOT NULL, id TEXT NOT NULL, \
             first INTEGER NOT NULL, stop INTEGER NOT NULL, content BLOB NOT NULL, \
             UNIQUE(id, owner, first))"
        ),
        HistoryPart::Records => format!(
            "CREATE TABLE \"records{day}\"(owner TEXT NOT NULL, id TEXT NOT NULL, \
             at INTEGER NOT NULL, version INTEGER NOT NULL, status TEXT NOT NULL, \
             problem INTEGER NOT NULL, closed INTEGER NOT NULL, head BLOB NOT NULL, \
             UNIQUE(id, owner)); \
             CREATE INDEX \"records{day}time\" ON \"records{day}\"(at, id); \
             CREATE INDEX \"records{day}owner\" ON \"records{day}\"(owner, at, id); \
             CREATE INDEX \"records{day}problem\" ON \"records{day}\"(at, id) WHERE problem; \
             CREATE TABLE \"ids{day}\"(alias TEXT NOT NULL, id TEXT NOT NULL, \
             owner TEXT NOT NULL, PRIMARY KEY(alias, id, owner)) WITHOUT ROWID; \
             CREATE INDEX \"ids{day}record\" ON \"ids{day}\"(id, owner)"
        ),
    })
}

/// Returns the time before which everything was dropped.
pub(super) fn floor(tables: &Connection, part: HistoryPart) -> Result<Option<i64>> {
    tables
        .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
        .query_row([name(part)], |row| row.get(0))
        .optional()
}

fn is_dropped(tables: &Connection, period: Period) -> Result<bool> {
    let floor = floor(tables, period.part)?;
    Ok(floor.is_some_and(|floor| period.end() <= floor))
}

/// Writes something, to learn whether writing works.
pub(super) fn touch(tables: &Connection) -> Result<()> {
    tables
        .prepare_cached(
            "INSERT INTO settings(name, value) VALUES('checks', 1) \
             ON CONFLICT(name) DO UPDATE SET value = value + 1",
        )?
        .execute([])
        .map(drop)
}

pub(super) fn append(tables: &Connection, append: &HistoryAppend) -> Result<Appended> {
    let mut record = append.record.clone();
    if append.is_new
        && let Some(known) = self::record(tables, &record.id)?
    {
        if known.is_closed {
            return Ok(Appended::Closed(known));
        }
        record.at = known.at;
    }
    put_record(tables, &record, &append.also)?;
    if let Some(chunk) = &append.events {
        put_events(tables, &record, std::slice::from_ref(chunk))?;
    }
    Ok(Appended::Stored { at: record.at })
}

pub(super) fn import(
    tables: &Connection,
    mut record: HistoryRecord,
    also: &[String],
    events: &[EventChunk],
) -> Result<()> {
    if let Some(known) = self::record(tables, &record.id)? {
        record.at = known.at;
    }
    put_record(tables, &record, also)?;
    put_events(tables, &record, events)
}

fn put_record(tables: &Connection, record: &HistoryRecord, also: &[String]) -> Result<()> {
    let period = Period::of(HistoryPart::Records, record.at);
    if is_dropped(tables, period)? {
        return Ok(());
    }
    ensure(tables, period)?;
    let day = period.day;
    let RecordId { owner, id } = &record.id;
    tables
        .prepare_cached(&format!(
            "INSERT INTO \"records{day}\"({COLUMNS}) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
             ON CONFLICT(id, owner) DO UPDATE SET version = excluded.version, \
             status = excluded.status, problem = excluded.problem, head = excluded.head, \
             closed = max(closed, excluded.closed) WHERE excluded.version >= version"
        ))?
        .execute(params![
            owner,
            id,
            record.at.as_microsecond(),
            signed(record.version),
            record.status,
            record.is_problem,
            record.is_closed,
            record.head.as_ref(),
        ])?;
    let mut statement = tables.prepare_cached(&format!(
        "INSERT OR IGNORE INTO \"ids{day}\"(alias, id, owner) VALUES(?1, ?2, ?3)"
    ))?;
    for alias in also.iter().chain([id]) {
        statement.execute(params![alias, id, owner])?;
    }
    Ok(())
}

fn put_events(tables: &Connection, record: &HistoryRecord, chunks: &[EventChunk]) -> Result<()> {
    let period = Period::of(HistoryPart::Events, record.at);
    if chunks.is_empty() || is_dropped(tables, period)? {
        return Ok(());
    }
    ensure(tables, period)?;
    // A longer chunk contains all events of a shorter one with the same beginning.
    let mut statement = tables.prepare_cached(&format!(
        "INSERT INTO \"events{}\"(owner, id, first, stop, content) VALUES(?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT(id, owner, first) DO UPDATE SET stop = excluded.stop, \
         content = excluded.content WHERE excluded.stop > stop",
        period.day
    ))?;
    for chunk in chunks {
        statement.execute(params![
            record.id.owner,
            record.id.id,
            signed(chunk.first),
            signed(chunk.end),
            chunk.content.as_ref(),
        ])?;
    }
    Ok(())
}

fn read_record(row: &Row<'_>) -> Result<HistoryRecord> {
    let at: i64 = row.get(2)?;
    let at = Timestamp::from_microsecond(at)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(2, at))?;
    Ok(HistoryRecord {
        id: RecordId::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?),
        at,
        version: unsigned(row.get(3)?),
        status: row.get(4)?,
        is_problem: row.get(5)?,
        is_closed: row.get(6)?,
        head: row.get::<_, Vec<u8>>(7)?.into(),
    })
}

pub(super) fn record(tables: &Connection, id: &RecordId) -> Result<Option<HistoryRecord>> {
    for period in periods(tables, HistoryPart::Records)? {
        let found = tables
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM \"records{}\" WHERE id = ?1 AND owner = ?2",
                period.day
            ))?
            .query_row([&id.id, &id.owner], read_record)
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) fn aliases(tables: &Connection, record: &HistoryRecord) -> Result<Vec<String>> {
    let period = Period::of(HistoryPart::Records, record.at);
    if !periods(tables, HistoryPart::Records)?.contains(&period) {
        return Ok(Vec::new());
    }
    let mut statement = tables.prepare_cached(&format!(
        "SELECT alias FROM \"ids{}\" WHERE id = ?1 AND owner = ?2 AND alias <> id ORDER BY alias",
        period.day
    ))?;
    let found = statement.query_map([&record.id.id, &record.id.owner], |row| row.get(0))?;
    found.collect()
}

pub(super) fn events(
    tables: &Connection,
    id: &RecordId,
    at: Timestamp,
    from: u64,
) -> Result<Vec<EventChunk>> {
    let period = Period::of(HistoryPart::Events, at);
    if !periods(tables, HistoryPart::Events)?.contains(&period) {
        return Ok(Vec::new());
    }
    let mut statement = tables.prepare_cached(&format!(
        "SELECT first, stop, content FROM \"events{}\" \
         WHERE id = ?1 AND owner = ?2 AND stop > ?3 ORDER BY first",
        period.day
    ))?;
    let found = statement.query_map(params![id.id, id.owner, signed(from)], |row| {
        Ok(EventChunk {
            first: unsigned(row.get(0)?),
            end: unsigned(row.get(1)?),
            content: row.get::<_, Vec<u8>>(2)?.into(),
        })
    })?;
    found.collect()
}

/// The conditions of a filter, with their values.
fn conditions(filter: &HistoryFilter) -> (String, Vec<Value>) {
    let mut text = "1".to_owned();
    let mut values: Vec<Value> = Vec::new();
    let mut add = |condition: &str, given: Vec<Value>| {
        text.push_str(" AND ");
        text.push_str(condition);
        values.extend(given);
    };
    if let Some(owner) = &filter.owner {
        add("owner = ?", vec![owner.clone().into()]);
    }
    if let Some(status) = &filter.status {
        add("status = ?", vec![status.clone().into()]);
    }
    if filter.problems {
        add("problem", Vec::new());
    }
    if let Some(since) = filter.since {
        add("at >= ?", vec![since.as_microsecond().into()]);
    }
    if let Some(after) = &filter.after {
        let place = vec![after.at.as_microsecond().into(), after.id.clone().into()];
        add("(at, id) < (?, ?)", place);
    }
    (text, values)
}

pub(super) fn list(tables: &Connection, filter: &HistoryFilter) -> Result<HistoryPage> {
    let (conditions, values) = conditions(filter);
    let wanted = filter.limit.max(1);
    let mut page = HistoryPage::default();
    for period in periods(tables, HistoryPart::Records)? {
        let is_past = filter
            .since
            .is_some_and(|since| period.end() <= since.as_microsecond());
        let is_before =
            (filter.after.as_ref()).is_some_and(|after| period.start() > after.at.as_microsecond());
        if is_past || is_before {
            continue;
        }
        let mut statement = tables.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM \"records{}\" WHERE {conditions} \
             ORDER BY at DESC, id DESC LIMIT ?",
            period.day
        ))?;
        let left = wanted + 1 - page.records.len();
        let limit = Value::from(i64::try_from(left).unwrap_or(i64::MAX));
        let values = values.iter().cloned().chain([limit]);
        for record in statement.query_map(params_from_iter(values), read_record)? {
            page.records.push(record?);
        }
        if page.records.len() > wanted {
            page.records.truncate(wanted);
            page.more = true;
            break;
        }
    }
    Ok(page)
}

pub(super) fn find(tables: &Connection, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>> {
    let mut found = Vec::new();
    for period in periods(tables, HistoryPart::Records)? {
        let mut statement = tables.prepare_cached(&format!(
            "SELECT alias, owner, id FROM \"ids{}\" WHERE alias >= ?1 AND alias < ?2 \
             ORDER BY alias, id, owner LIMIT ?3",
            period.day
        ))?;
        let end = format!("{prefix}\u{10ffff}");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![prefix, end, limit], |row| {
            Ok(FoundRecord {
                alias: row.get(0)?,
                record: RecordId::new(row.get::<_, String>(1)?, row.get::<_, String>(2)?),
            })
        })?;
        for row in rows {
            found.push(row?);
        }
    }
    found.sort();
    found.truncate(limit);
    Ok(found)
}

/// Deletes one record of an owner, or all.
pub(super) fn remove(tables: &Connection, owner: &str, id: Option<&str>) -> Result<()> {
    for part in PARTS {
        for period in periods(tables, part)? {
            let names: &[&str] = match part {
                HistoryPart::Events => &["events"],
                HistoryPart::Records => &["records", "ids"],
            };
            for table in names {
                let day = period.day;
                let all = format!("DELETE FROM \"{table}{day}\" WHERE owner = ?1");
                match id {
                    None => tables.prepare_cached(&all)?.execute([owner])?,
                    Some(id) => tables
                        .prepare_cached(&format!("{all} AND id = ?2"))?
                        .execute([owner, id])?,
                };
            }
        }
    }
    Ok(())
}

pub(super) fn drop_before(
    tables: &Connection,
    part: HistoryPart,
    before: Timestamp,
) -> Result<usize> {
    let before = before.as_microsecond();
    let mut dropped = 0;
    for period in periods(tables, part)? {
        if period.end() > before {
            continue;
        }
        let day = period.day;
        tables.execute_batch(&match part {
            HistoryPart::Events => format!("DROP TABLE \"events{day}\""),
            HistoryPart::Records => {
                format!("DROP TABLE \"records{day}\"; DROP TABLE \"ids{day}\"")
            }
        })?;
        tables.execute(
            "DELETE FROM periods WHERE part = ?1 AND day = ?2",
            params![name(part), day],
        )?;
        tables.execute(
            "INSERT INTO settings(name, value) VALUES(?1, ?2) \
             ON CONFLICT(name) DO UPDATE SET value = max(value, excluded.value)",
            params![name(part), period.end()],
        )?;
        dropped += 1;
    }
    // Events never outlive their record.
    if part == HistoryPart::Records {
        let before = Timestamp::from_microsecond(before);
        if let Ok(before) = before {
            drop_before(tables, HistoryPart::Events, before)?;
        }
    }
    Ok(dropped)
}
