//! History in a real PostgreSQL: the contract, TLS, schemas, and failures of every kind.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::Transaction;
use bunraku_store::contract::history::{self, HistorySubject, opaque_head};
use bunraku_store::history::postgresql::{PostgresqlHistory, PostgresqlOptions};
use bunraku_store::history::{
    EventChunk, History, HistoryAppend, HistoryError, HistoryFilter, HistoryPart, HistoryPosition,
    HistoryRecord, RecordId,
};
use bunraku_store::testing::{MemoryStore, PostgresqlServer};
use bunraku_testkit::eventually;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;

/// Runs every case on one server, each in a database of its own.
macro_rules! all_cases {
    ($server:ident: $($case:ident)*) => {
        $(
            println!("{}", stringify!($case));
            let options = $server.database(stringify!($case)).await;
            history::$case(subject(options)).await;
        )*
    };
}

fn subject(options: PostgresqlOptions) -> HistorySubject {
    HistorySubject {
        history: Arc::new(PostgresqlHistory::new(options).expect("valid settings")),
        store: Arc::new(MemoryStore::new()),
        acknowledge: opaque_head,
        drops_events: true,
        keep: Arc::new(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_history_holds_on_postgresql() {
    let server = PostgresqlServer::start().await;
    all_cases!(server:
        an_append_is_read_back
        the_same_append_again_changes_nothing
        overlapping_appends_are_read_once_and_in_order
        an_older_version_never_replaces_a_newer_one
        an_append_that_nobody_acknowledged_can_be_repeated_later
        appends_of_one_new_record_at_once_make_one_record
        a_closed_record_is_not_appended_to
        lists_are_newest_first_and_filtered
        pages_join_without_gap_or_overlap
        records_are_found_by_the_beginning_of_an_id
        one_id_of_two_owners_is_two_records
        removing_a_record_or_an_owner_leaves_the_others
        dropping_removes_old_periods_and_nothing_else
        an_append_to_a_dropped_period_is_accepted
        times_far_apart_are_kept_in_order
        a_record_of_another_backend_can_be_imported_again_and_again
        a_report_of_many_chunks_is_read_from_any_number
        checking_changes_nothing
    );
}

fn day(number: i64) -> Timestamp {
    let first: Timestamp = "2026-03-05T12:00:00Z".parse().expect("a time");
    let hours = SignedDuration::from_hours(24 * number);
    first.checked_add(hours).expect("a time")
}

fn append(number: u64, at: Timestamp, first: u64, end: u64) -> HistoryAppend {
    HistoryAppend {
        record: HistoryRecord {
            id: RecordId::new(format!("web-{}", number % 7), format!("{number:08x}")),
            at,
            version: end,
            status: "unfinished".to_owned(),
            is_problem: true,
            is_closed: false,
            head: vec![1; 300].into(),
        },
        also: Vec::new(),
        is_new: first == 0,
        events: Some(EventChunk {
            first,
            end,
            content: vec![2; 300].into(),
        }),
    }
}

async fn put(history: &PostgresqlHistory, append: HistoryAppend) -> Result<(), HistoryError> {
    history.append(Transaction::new(), append).await.map(drop)
}

async fn count(history: &PostgresqlHistory) -> usize {
    let filter = HistoryFilter {
        limit: 100_000,
        ..HistoryFilter::default()
    };
    history.list(&filter).await.expect("readable").records.len()
}

/// Limits that let a test notice an outage soon.
fn impatient(options: PostgresqlOptions) -> PostgresqlOptions {
    PostgresqlOptions {
        connect_timeout: Duration::from_secs(1),
        statement_timeout: Duration::from_secs(1),
        wait_timeout: Duration::from_secs(1),
        ..options
    }
}

/// Repeats an append until it is accepted, as agents do.
async fn put_in_the_end(history: &PostgresqlHistory, append: HistoryAppend) {
    let mut again = tokio::time::interval(Duration::from_millis(100));
    let done = tokio::time::timeout(Duration::from_secs(120), async {
        while put(history, append.clone()).await.is_err() {
            again.tick().await;
        }
    });
    done.await.expect("it is accepted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_verified_and_plain_text_is_refused_with_tls() {
    let server = PostgresqlServer::start().await;
    let options = PostgresqlOptions {
        tls: Some(server.tls()),
        ..server.database("encrypted").await
    };
    let history = PostgresqlHistory::new(options.clone()).expect("valid settings");
    put(&history, append(1, day(0), 0, 2))
        .await
        .expect("stored");
    let client = server.connect("encrypted").await;
    let row = client
        .query_one(
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE usename = 'encrypted'",
            &[],
        )
        .await
        .expect("readable");
    assert!(row.get::<_, bool>(0));

    // Another authority, and a name that the certificate does not have.
    let stranger = PostgresqlServer::start().await;
    let wrong = PostgresqlOptions {
        tls: Some(stranger.tls()),
        ..options
    };
    let history = PostgresqlHistory::new(wrong).expect("valid settings");
    let refused = history.check(day(0)).await.expect_err("refused");
    assert!(
        matches!(refused, HistoryError::Unavailable { .. }),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_once_create_the_tables_once() {
    let server = PostgresqlServer::start().await;
    let options = server.database("together").await;
    let servers = (0..6).map(|number| {
        let history = PostgresqlHistory::new(options.clone()).expect("valid settings");
        tokio::spawn(async move {
            history.check(day(0)).await.expect("ready");
            put(&history, append(number, day(0), 0, 2))
                .await
                .expect("stored");
            history
        })
    });
    let mut last = None;
    for server in servers.collect::<Vec<_>>() {
        last = Some(server.await.expect("no panic"));
    }
    assert_eq!(count(&last.expect("some")).await, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_schema_is_refused_and_an_unfinished_one_is_completed() {
    let server = PostgresqlServer::start().await;
    let options = server.database("versions").await;
    let client = server.connect("versions").await;
    // The first version of the program that came here died before its first step.
    client
        .batch_execute(
            "CREATE SCHEMA bunraku AUTHORIZATION versions; SET ROLE versions;
             CREATE TABLE bunraku.schema_version(version bigint NOT NULL);
             INSERT INTO bunraku.schema_version VALUES(0)",
        )
        .await
        .expect("prepared");
    let history = PostgresqlHistory::new(options.clone()).expect("valid settings");
    put(&history, append(1, day(0), 0, 2))
        .await
        .expect("stored");

    let update = "UPDATE bunraku.schema_version SET version = 99";
    client.batch_execute(update).await.expect("changed");
    let history = PostgresqlHistory::new(options).expect("valid settings");
    for _ in 0..2 {
        let refused = put(&history, append(2, day(0), 0, 2))
            .await
            .expect_err("refused");
        assert!(
            refused.to_string().contains("schema version 99"),
            "{refused}"
        );
        assert!(!refused.is_temporary());
    }
    assert!(history.outage().expect("noted").message.contains("99"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_postgresql_is_killed_and_frozen() {
    let mut server = PostgresqlServer::start().await;
    let options = impatient(server.database("killed").await);
    let history = PostgresqlHistory::new(options).expect("valid settings");
    let writer = tokio::spawn({
        let history = history.clone();
        async move {
            for number in 0..60 {
                // Batches overlap, as those of agents whose replies were lost.
                for (first, end) in [(0, 1), (0, 4), (3, 6)] {
                    put_in_the_end(&history, append(number, day(0), first, end)).await;
                }
            }
        }
    });
    let progressed = async |least: usize| {
        eventually(async || count_if_possible(&history).await >= least).await;
    };
    progressed(10).await;
    server.kill();
    eventually(async || history.outage().is_some()).await;
    let outage = history.outage().expect("noted");
    assert!(!outage.message.contains("password"), "{outage:?}");
    server.launch();
    server.wait_until_ready().await;
    progressed(30).await;
    server.signal_all(Signal::STOP);
    // The caller gets an error in time, instead of waiting.
    assert!(history.check(day(0)).await.is_err());
    eventually(async || history.outage().is_some()).await;
    server.signal_all(Signal::CONT);
    writer.await.expect("all is stored");
    assert_eq!(count(&history).await, 60);
    for number in 0..60 {
        let id = append(number, day(0), 0, 1).record.id;
        let chunks = history.events(&id, day(0), 0).await.expect("readable");
        let ranges: Vec<_> = chunks.iter().map(|it| (it.first, it.end)).collect();
        assert_eq!(ranges, [(0, 4), (3, 6)]);
    }
    assert_eq!(history.outage(), None);
}

async fn count_if_possible(history: &PostgresqlHistory) -> usize {
    let filter = HistoryFilter {
        limit: 1_000,
        ..HistoryFilter::default()
    };
    let page = history.list(&filter).await;
    page.map_or(0, |page| page.records.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_and_a_slow_statement_are_errors_that_pass() {
    let server = PostgresqlServer::start().await;
    let options = impatient(server.database("filled").await);
    let history = PostgresqlHistory::new(options).expect("valid settings");
    put(&history, append(1, day(0), 0, 2))
        .await
        .expect("stored");
    // The same error that PostgreSQL raises when a file cannot grow.
    let client = server.connect("filled").await;
    let refuse = |code: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$"
        )
    };
    client
        .batch_execute(&refuse("53100"))
        .await
        .expect("created");
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON bunraku.events \
                   FOR EACH ROW EXECUTE FUNCTION refuse()";
    client.batch_execute(trigger).await.expect("created");
    let refused = put(&history, append(2, day(0), 0, 2))
        .await
        .expect_err("refused");
    assert!(matches!(refused, HistoryError::Full { .. }), "{refused:?}");
    let slow = "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$";
    client.batch_execute(slow).await.expect("created");
    let refused = put(&history, append(2, day(0), 0, 2))
        .await
        .expect_err("refused");
    assert!(
        matches!(refused, HistoryError::Unavailable { .. }),
        "{refused:?}"
    );
    // Nothing of it is visible, and what was stored is.
    assert_eq!(count(&history).await, 1);
    client
        .batch_execute("DROP TRIGGER refuse ON bunraku.events")
        .await
        .expect("dropped");
    put(&history, append(2, day(0), 0, 2))
        .await
        .expect("stored");
    assert_eq!(count(&history).await, 2);
    assert_eq!(history.outage(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_connections_fail_soon() {
    let server = PostgresqlServer::start().await;
    let options = PostgresqlOptions {
        connections: 2,
        statement_timeout: Duration::from_secs(30),
        wait_timeout: Duration::from_millis(300),
        ..server.database("busy").await
    };
    let history = PostgresqlHistory::new(options).expect("valid settings");
    history.check(day(0)).await.expect("ready");
    let mut client = server.connect("busy").await;
    let lock = client.transaction().await.expect("begun");
    let text = "LOCK TABLE bunraku.records IN ACCESS EXCLUSIVE MODE";
    lock.batch_execute(text).await.expect("locked");
    let waiting: Vec<_> = (0..2)
        .map(|number| {
            let history = history.clone();
            tokio::spawn(async move { put(&history, append(number, day(0), 0, 2)).await })
        })
        .collect();
    // Both connections are in use once both requests wait for the lock.
    let observer = server.connect("busy").await;
    let both = async {
        let text = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let count = async || {
            observer
                .query_one(text, &[])
                .await
                .expect("counted")
                .get::<_, i64>(0)
        };
        while 2_i64 != count().await {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(25);
    let both = tokio::time::timeout(limit, both).await;
    both.expect("both wait for the lock");
    let third = put(&history, append(9, day(0), 0, 2)).await;
    assert!(matches!(third, Err(HistoryError::Busy { .. })), "{third:?}");
    assert_eq!(history.outage(), None);
    lock.rollback().await.expect("unlocked");
    for waiting in waiting {
        waiting.await.expect("no panic").expect("stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_another_server_dropped_is_noticed() {
    let server = PostgresqlServer::start().await;
    let options = server.database("dropped").await;
    let one = PostgresqlHistory::new(options.clone()).expect("valid settings");
    let two = PostgresqlHistory::new(options).expect("valid settings");
    put(&one, append(1, day(0), 0, 2)).await.expect("stored");
    let dropped = two.drop_before(HistoryPart::Events, day(10)).await;
    assert_eq!(dropped.expect("dropped"), 1);
    put(&one, append(1, day(0), 2, 4)).await.expect("accepted");
    let id = append(1, day(0), 0, 1).record.id;
    assert_eq!(one.events(&id, day(0), 0).await.expect("readable"), []);
    assert_eq!(
        one.record(&id)
            .await
            .expect("readable")
            .expect("kept")
            .version,
        4
    );
    put(&one, append(2, day(11), 0, 2)).await.expect("stored");
    assert_eq!(count(&two).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reports_are_listed_in_pages() {
    let server = PostgresqlServer::start().await;
    let options = server.database("many").await;
    let history = PostgresqlHistory::new(options).expect("valid settings");
    futures::stream::iter(0..10_000_u64)
        .for_each_concurrent(8, |number| {
            let history = &history;
            async move {
                let at = day(i64::try_from(number % 60).expect("small"));
                put(history, append(number, at, 0, 2))
                    .await
                    .expect("stored");
            }
        })
        .await;
    let (mut seen, mut pages) = (std::collections::BTreeSet::new(), 0);
    let mut filter = HistoryFilter {
        limit: 1_000,
        ..HistoryFilter::default()
    };
    loop {
        let page = history.list(&filter).await.expect("readable");
        seen.extend(page.records.iter().map(|record| record.id.clone()));
        filter.after = page.records.last().map(HistoryPosition::of);
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (10_000, 10));
    // A page of one node reads an index, whatever the number of records.
    let client = server.connect("many").await;
    let plan = client
        .query(
            "EXPLAIN SELECT id FROM bunraku.records WHERE owner = 'web-3' \
             ORDER BY at DESC, id DESC LIMIT 10",
            &[],
        )
        .await
        .expect("explained");
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(!plan.iter().any(|line| line.contains("Sort")), "{plan:#?}");
}
