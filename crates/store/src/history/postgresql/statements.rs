//! The statements on records and events.

use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, GenericClient, Row, Transaction};

use crate::history::{
    Appended, EventChunk, FoundRecord, HistoryFilter, HistoryPage, HistoryRecord, RecordId,
};

const COLUMNS: &str = "owner, id, at, version, status, problem, closed, head";

/// Event numbers are limited to what the tables can hold before they get here.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What of an append is stored: parts whose period was dropped are not.
#[derive(Clone, Copy)]
pub(super) struct KeptParts {
    pub(super) record: bool,
    pub(super) events: bool,
}

/// A record to store, with some of its events.
pub(super) struct RecordWrite<'a> {
    pub(super) record: &'a HistoryRecord,
    pub(super) also: &'a [String],
    pub(super) events: &'a [EventChunk],
    /// `true` if the record may be stored already, with another time.
    pub(super) may_be_stored: bool,
    /// `true` to leave a closed record unchanged.
    pub(super) refuse_closed: bool,
}

/// Writes in one transaction.
pub(super) async fn write(
    client: &mut Client,
    wanted: &RecordWrite<'_>,
    kept: KeptParts,
) -> Result<Appended, Error> {
    let transaction = client.transaction().await?;
    let mut record = wanted.record.clone();
    if wanted.may_be_stored
        && let Some(known) = lock_record(&transaction, &record.id).await?
    {
        if known.is_closed && wanted.refuse_closed {
            return Ok(Appended::Closed(known));
        }
        record.at = known.at;
    }
    put(&transaction, &record, wanted.also, wanted.events, kept).await?;
    transaction.commit().await?;
    Ok(Appended::Stored { at: record.at })
}

pub(super) async fn record(
    client: &impl GenericClient,
    id: &RecordId,
) -> Result<Option<HistoryRecord>, Error> {
    let text = format!("SELECT {COLUMNS} FROM bunraku.records WHERE id = $1 AND owner = $2");
    let found = client.query(&text, &[&id.id, &id.owner]).await?;
    found.first().map(read_record).transpose()
}

/// Returns a record, and keeps others from creating it until the transaction ends. The table's own
/// key contains the time, so it does not prevent two records of one id.
async fn lock_record(
    transaction: &Transaction<'_>,
    id: &RecordId,
) -> Result<Option<HistoryRecord>, Error> {
    let name = format!("bunraku {} {}", id.owner, id.id);
    transaction
        .execute(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            &[&name],
        )
        .await?;
    record(transaction, id).await
}

async fn put(
    transaction: &Transaction<'_>,
    record: &HistoryRecord,
    also: &[String],
    events: &[EventChunk],
    kept: KeptParts,
) -> Result<(), Error> {
    let (owner, id, at) = (&record.id.owner, &record.id.id, record.at.as_microsecond());
    if kept.record {
        let text = format!(
            "INSERT INTO bunraku.records AS known({COLUMNS}) \
             VALUES($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT(at, id, owner) DO UPDATE SET version = excluded.version, \
             status = excluded.status, problem = excluded.problem, head = excluded.head, \
             closed = known.closed OR excluded.closed WHERE excluded.version >= known.version"
        );
        let version = signed(record.version);
        let (problem, closed, head) = (record.is_problem, record.is_closed, record.head.as_ref());
        let values: [&(dyn ToSql + Sync); 8] = [
            owner,
            id,
            &at,
            &version,
            &record.status,
            &problem,
            &closed,
            &head,
        ];
        transaction.execute(&text, &values).await?;
        let aliases: Vec<&str> = also.iter().chain([id]).map(String::as_str).collect();
        transaction
            .execute(
                "INSERT INTO bunraku.ids(alias, id, owner, at) \
                 SELECT alias, $2, $3, $4 FROM unnest($1::text[]) AS alias \
                 ON CONFLICT DO NOTHING",
                &[&aliases, id, owner, &at],
            )
            .await?;
    }
    for chunk in events.iter().filter(|_| kept.events) {
        let (first, stop) = (signed(chunk.first), signed(chunk.end));
        // A longer chunk contains all events of a shorter one with the same beginning.
        transaction
            .execute(
                "INSERT INTO bunraku.events AS known(owner, id, at, first, stop, content) \
                 VALUES($1, $2, $3, $4, $5, $6) \
                 ON CONFLICT(at, id, owner, first) DO UPDATE SET stop = excluded.stop, \
                 content = excluded.content WHERE excluded.stop > known.stop",
                &[owner, id, &at, &first, &stop, &chunk.content.as_ref()],
            )
            .await?;
    }
    Ok(())
}

fn read_record(row: &Row) -> Result<HistoryRecord, Error> {
    let at: i64 = row.try_get(2)?;
    Ok(HistoryRecord {
        id: RecordId::new(row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?),
        // Only times were written.
        at: Timestamp::from_microsecond(at).unwrap_or_default(),
        version: unsigned(row.try_get(3)?),
        status: row.try_get(4)?,
        is_problem: row.try_get(5)?,
        is_closed: row.try_get(6)?,
        head: row.try_get::<_, Vec<u8>>(7)?.into(),
    })
}

pub(super) async fn aliases(client: &Client, id: &RecordId) -> Result<Vec<String>, Error> {
    let text = "SELECT DISTINCT alias FROM bunraku.ids \
                WHERE id = $1 AND owner = $2 AND alias <> id ORDER BY alias";
    let rows = client.query(text, &[&id.id, &id.owner]).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

pub(super) async fn events(
    client: &Client,
    id: &RecordId,
    at: Timestamp,
    from: u64,
) -> Result<Vec<EventChunk>, Error> {
    let rows = client
        .query(
            "SELECT first, stop, content FROM bunraku.events \
             WHERE at = $1 AND id = $2 AND owner = $3 AND stop > $4 ORDER BY first",
            &[&at.as_microsecond(), &id.id, &id.owner, &signed(from)],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(EventChunk {
                first: unsigned(row.try_get(0)?),
                end: unsigned(row.try_get(1)?),
                content: row.try_get::<_, Vec<u8>>(2)?.into(),
            })
        })
        .collect()
}

pub(super) async fn list(client: &Client, filter: &HistoryFilter) -> Result<HistoryPage, Error> {
    let mut text = format!("SELECT {COLUMNS} FROM bunraku.records WHERE true");
    let mut values: Vec<Box<dyn ToSql + Sync + Send>> = Vec::new();
    let mut add = |condition: &str, given: Vec<Box<dyn ToSql + Sync + Send>>| {
        let mut condition = condition.to_owned();
        for value in given {
            values.push(value);
            condition = condition.replacen('?', &format!("${}", values.len()), 1);
        }
        text.push_str(" AND ");
        text.push_str(&condition);
    };
    if let Some(owner) = &filter.owner {
        add("owner = ?", vec![Box::new(owner.clone())]);
    }
    if let Some(status) = &filter.status {
        add("status = ?", vec![Box::new(status.clone())]);
    }
    if filter.problems {
        add("problem", Vec::new());
    }
    if let Some(since) = filter.since {
        add("at >= ?", vec![Box::new(since.as_microsecond())]);
    }
    if let Some(after) = &filter.after {
        let at = after.at.as_microsecond();
        // The first condition leaves out newer partitions.
        add("at <= ?", vec![Box::new(at)]);
        let place: Vec<Box<dyn ToSql + Sync + Send>> =
            vec![Box::new(at), Box::new(after.id.clone())];
        add("(at, id) < (?, ?)", place);
    }
    let wanted = filter.limit.max(1);
    text.push_str(&format!(" ORDER BY at DESC, id DESC LIMIT {}", wanted + 1));
    let values: Vec<&(dyn ToSql + Sync)> = values
        .iter()
        .map(|value| &**value as &(dyn ToSql + Sync))
        .collect();
    let rows = client.query(&text, &values).await?;
    let records: Result<Vec<_>, _> = rows.iter().take(wanted).map(read_record).collect();
    Ok(HistoryPage {
        records: records?,
        more: rows.len() > wanted,
    })
}

pub(super) async fn find(
    client: &Client,
    prefix: &str,
    limit: usize,
) -> Result<Vec<FoundRecord>, Error> {
    let end = format!("{prefix}\u{10ffff}");
    let rows = client
        .query(
            "SELECT DISTINCT alias, owner, id FROM bunraku.ids \
             WHERE alias >= $1 AND alias < $2 ORDER BY alias, owner, id LIMIT $3",
            &[&prefix, &end, &i64::try_from(limit).unwrap_or(i64::MAX)],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(FoundRecord {
                alias: row.try_get(0)?,
                record: RecordId::new(row.try_get::<_, String>(1)?, row.try_get::<_, String>(2)?),
            })
        })
        .collect()
}

/// Deletes one record of an owner, or all.
pub(super) async fn remove(
    client: &mut Client,
    owner: &str,
    id: Option<&str>,
) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    for table in ["events", "ids", "records"] {
        let text = format!("DELETE FROM bunraku.{table} WHERE owner = $1");
        match id {
            None => transaction.execute(&text, &[&owner]).await?,
            Some(id) => {
                let text = format!("{text} AND id = $2");
                transaction.execute(&text, &[&owner, &id]).await?
            }
        };
    }
    transaction.commit().await
}
