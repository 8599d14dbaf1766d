//! Partitions: created ahead of time, dropped whole.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio_postgres::{Client, Error, GenericClient};

use super::schema;
use crate::history::HistoryPart;
use crate::history::period::Period;

/// The tables of a part.
fn tables(part: HistoryPart) -> &'static [&'static str] {
    match part {
        HistoryPart::Events => &["events"],
        HistoryPart::Records => &["records", "ids"],
    }
}

/// The name of the setting with the time before which everything was dropped.
fn floor_name(part: HistoryPart) -> &'static str {
    match part {
        HistoryPart::Events => "events",
        HistoryPart::Records => "records",
    }
}

/// Partitions have the number of their first day in their name, with a letter for its sign.
fn partition(table: &str, period: Period) -> String {
    let sign = if period.day < 0 { 'm' } else { 'p' };
    format!("{table}_{sign}{}", period.day.unsigned_abs())
}

fn parse(table: &str, part: HistoryPart, name: &str) -> Option<Period> {
    let rest = name.strip_prefix(table)?.strip_prefix('_')?;
    let day: i64 = rest.get(1..)?.parse().ok()?;
    let day = match rest.get(..1)? {
        "m" => -day,
        "p" => day,
        _ => return None,
    };
    Some(Period { part, day })
}

/// Creates the partitions of a period.
pub(super) async fn create(client: &mut Client, period: Period) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    schema::lock(&transaction).await?;
    for table in tables(period.part) {
        let name = partition(table, period);
        let (start, end) = (period.start(), period.end());
        transaction
            .batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS bunraku.{name} PARTITION OF bunraku.{table} \
                 FOR VALUES FROM ({start}) TO ({end})"
            ))
            .await?;
    }
    transaction.commit().await
}

/// Returns the periods that exist.
async fn existing(
    client: &impl GenericClient,
    part: HistoryPart,
) -> Result<BTreeSet<Period>, Error> {
    let table = tables(part)[0];
    let rows = client
        .query(
            "SELECT child.relname::text FROM pg_inherits \
             JOIN pg_class child ON child.oid = inhrelid \
             WHERE inhparent = to_regclass($1::text)",
            &[&format!("bunraku.{table}")],
        )
        .await?;
    let names = rows.iter().map(|row| row.try_get::<_, String>(0));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    Ok(names
        .iter()
        .filter_map(|name| parse(table, part, name))
        .collect())
}

/// Drops every period that ends before a time. Returns their number.
pub(super) async fn drop_before(
    client: &mut Client,
    part: HistoryPart,
    before: Timestamp,
) -> Result<usize, Error> {
    let transaction = client.transaction().await?;
    schema::lock(&transaction).await?;
    let mut floor = None;
    let mut dropped = 0;
    for period in existing(&transaction, part).await? {
        if period.end() > before.as_microsecond() {
            continue;
        }
        for table in tables(part) {
            let name = partition(table, period);
            let text = format!("DROP TABLE IF EXISTS bunraku.{name}");
            transaction.batch_execute(&text).await?;
        }
        floor = floor.max(Some(period.end()));
        dropped += 1;
    }
    if let Some(floor) = floor {
        transaction
            .execute(
                "INSERT INTO bunraku.settings(name, value) VALUES($1, $2) \
                 ON CONFLICT(name) DO UPDATE SET value = greatest(settings.value, excluded.value)",
                &[&floor_name(part), &floor],
            )
            .await?;
    }
    transaction.commit().await?;
    Ok(dropped)
}

/// Returns the time before which everything was dropped.
pub(super) async fn floor(
    client: &impl GenericClient,
    part: HistoryPart,
) -> Result<Option<i64>, Error> {
    let text = "SELECT value FROM bunraku.settings WHERE name = $1";
    let found = client.query_opt(text, &[&floor_name(part)]).await?;
    found.map(|row| row.try_get(0)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_recognised_by_its_name() {
        for at in ["2026-03-01T00:00:00Z", "1960-03-01T00:00:00Z"] {
            let at = at.parse().expect("a time");
            let period = Period::of(HistoryPart::Records, at);
            let name = partition("records", period);
            assert_eq!(parse("records", HistoryPart::Records, &name), Some(period));
        }
        assert_eq!(
            parse("records", HistoryPart::Records, "records_by_owner"),
            None
        );
    }
}
