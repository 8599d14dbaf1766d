//! The tables, and the steps from each version to the next.
//!
//! Any number of servers may start at once: a lock in the database lets one do the steps, and the
//! others find them done.

use tokio_postgres::{Client, Error, Transaction};

/// The steps. The version of a schema is the number of steps that led to it.
const STEPS: [&str; 1] = ["
    CREATE TABLE bunraku.settings(name text PRIMARY KEY, value bigint NOT NULL);
    CREATE TABLE bunraku.records(
        owner text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL, at bigint NOT NULL,
        version bigint NOT NULL, status text NOT NULL, problem boolean NOT NULL,
        closed boolean NOT NULL, head bytea NOT NULL,
        PRIMARY KEY(at, id, owner)
    ) PARTITION BY RANGE(at);
    CREATE INDEX records_by_owner ON bunraku.records(owner, at, id);
    CREATE INDEX records_by_id ON bunraku.records(id, owner);
    CREATE INDEX records_by_problem ON bunraku.records(at, id) WHERE problem;
    CREATE TABLE bunraku.ids(
        alias text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL,
        owner text COLLATE \"C\" NOT NULL, at bigint NOT NULL,
        PRIMARY KEY(at, alias, id, owner)
    ) PARTITION BY RANGE(at);
    CREATE INDEX ids_by_alias ON bunraku.ids(alias);
    CREATE INDEX ids_by_record ON bunraku.ids(id, owner);
    CREATE TABLE bunraku.events(
        owner text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL, at bigint NOT NULL,
        first bigint NOT NULL, stop bigint NOT NULL, content bytea NOT NULL,
        PRIMARY KEY(at, id, owner, first)
    ) PARTITION BY RANGE(at);
"];

/// The version that this program needs.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The key of the lock under which tables are created and dropped.
const LOCK: i64 = 0x426e_7261_6b75;

/// Takes the lock until the transaction ends.
pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(), Error> {
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map(drop)
}

/// Does the missing steps. Returns the version found; a higher one than [`VERSION`] is left alone.
pub(super) async fn migrate(client: &mut Client) -> Result<i64, Error> {
    let transaction = client.transaction().await?;
    lock(&transaction).await?;
    transaction
        .batch_execute(
            "CREATE SCHEMA IF NOT EXISTS bunraku;
             CREATE TABLE IF NOT EXISTS bunraku.schema_version(version bigint NOT NULL)",
        )
        .await?;
    let found = transaction
        .query_opt("SELECT version FROM bunraku.schema_version", &[])
        .await?;
    let found: i64 = match found {
        Some(row) => row.try_get(0)?,
        None => {
            let insert = "INSERT INTO bunraku.schema_version(version) VALUES(0)";
            transaction.execute(insert, &[]).await?;
            0
        }
    };
    if found >= VERSION {
        return Ok(found);
    }
    let done = usize::try_from(found).unwrap_or(0);
    for step in &STEPS[done..] {
        transaction.batch_execute(step).await?;
    }
    let update = "UPDATE bunraku.schema_version SET version = $1";
    transaction.execute(update, &[&VERSION]).await?;
    transaction.commit().await?;
    tracing::info!(from = found, to = VERSION, "prepared the tables of history");
    Ok(VERSION)
}
