//! Catalogs are kept while something holds them, and collected afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bunraku_model::catalog::{CatalogSource, SourceFile};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs, StoreBlobs};
use bunraku_store::testing::WriteCounter;
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Transaction};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tempfile::TempDir;

use super::record::Record;
use super::*;
use bunraku_control::document::Versioned;

struct Bench {
    catalogs: Catalogs,
    blobs: SharedBlobs,
    minutes: Arc<AtomicI64>,
    _directory: TempDir,
}

impl Bench {
    /// Creates a bench with one stored catalog.
    async fn with_catalog() -> (Self, CatalogId) {
        let bench = Self::new(CatalogOptions::default()).await;
        let (id, _) = bench.catalogs.put(&new(1, "text")).await.expect("kept");
        (bench, id)
    }

    async fn stored(&self, id: CatalogId) -> Versioned<Record> {
        let found = self.catalogs.stored(id).await;
        found.expect("readable").expect("there")
    }

    async fn new(options: CatalogOptions) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("s");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default());
        let store: SharedStore = Arc::new(store.await.expect("a store"));
        let place = directory.path().join("b");
        let blobs = DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default());
        let blobs: SharedBlobs = Arc::new(blobs.await.expect("blobs"));
        let minutes = Arc::new(AtomicI64::new(0));
        let count = Arc::clone(&minutes);
        let clock = Clock::new(move || {
            Timestamp::UNIX_EPOCH + SignedDuration::from_mins(count.load(Ordering::SeqCst))
        });
        let catalogs = Catalogs::new(store, blobs.clone(), clock, options);
        Self {
            catalogs,
            blobs,
            minutes,
            _directory: directory,
        }
    }

    async fn collect(&self) -> CollectedCatalogs {
        self.catalogs.collect().await.expect("it collects")
    }

    fn pass(&self, minutes: i64) {
        self.minutes.fetch_add(minutes, Ordering::SeqCst);
    }

    async fn references(&self, text: &str) -> usize {
        let id = ContentId::of(text.as_bytes());
        self.blobs.references(id).await.expect("readable").len()
    }
}

fn new(line: u64, file: &str) -> NewCatalog {
    let content = ContentId::of(file.as_bytes());
    let size = file.len() as u64;
    let source = CatalogSource::File(SourceFile { content, size });
    let resource =
        json!({"type": "File", "title": "/x", "line": line, "parameters": {"source": "salt://x"}});
    NewCatalog {
        node: NodeName::new("web-1").expect("a name"),
        environment: EnvironmentName::new("production").expect("a name"),
        code_id: CodeId("c1".to_owned()),
        catalog: Catalog {
            name: "web-1".to_owned(),
            resources: vec![serde_json::from_value(resource).expect("a resource")],
            sources: [("salt://x".to_owned(), source)].into(),
            ..Catalog::default()
        },
        files: vec![CatalogFile {
            content,
            from: FileSource::Bytes(Bytes::copy_from_slice(file.as_bytes())),
        }],
    }
}

#[tokio::test]
async fn a_catalog_reads_back_with_its_files() {
    let bench = Bench::new(CatalogOptions::default()).await;
    let (id, content) = bench.catalogs.put(&new(1, "text")).await.expect("kept");
    assert_eq!(
        bench.catalogs.get(id).await.expect("there"),
        new(1, "text").catalog
    );
    let record = bench
        .catalogs
        .record(id)
        .await
        .expect("readable")
        .expect("there");
    assert_eq!(record.content, content);
    assert_eq!(record.files, vec![ContentId::of(b"text")]);
    assert!(
        bench
            .blobs
            .has(ContentId::of(b"text"))
            .await
            .expect("readable")
    );
}

#[tokio::test]
async fn an_equal_catalog_keeps_its_first_text() {
    let bench = Bench::new(CatalogOptions::default()).await;
    let first = bench.catalogs.put(&new(1, "text")).await.expect("kept");
    let second = bench.catalogs.put(&new(9, "text")).await.expect("kept");
    assert_eq!(first, second);
    assert_eq!(bench.references("text").await, 1);
}

#[tokio::test]
async fn equal_catalogs_at_once_become_one() {
    let bench = Bench::new(CatalogOptions::default()).await;
    let puts = (0..8).map(|line| {
        let catalogs = bench.catalogs.clone();
        async move { catalogs.put(&new(line, "text")).await.expect("kept") }
    });
    let all = futures::future::join_all(puts).await;
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    assert_eq!(bench.references("text").await, 1);
}

#[tokio::test]
async fn what_is_held_stays_and_what_is_let_go_goes_with_its_files() {
    let (bench, id) = Bench::with_catalog().await;
    bench
        .catalogs
        .hold(id, "compiled/web-1")
        .await
        .expect("held");
    bench.pass(1_000);
    assert_eq!(bench.collect().await, CollectedCatalogs::default());
    let holders = bench.catalogs.holders(id).await.expect("readable");
    assert_eq!(holders, vec!["compiled/web-1"]);

    bench
        .catalogs
        .release(id, "compiled/web-1")
        .await
        .expect("let go");
    assert_eq!(bench.collect().await.condemned, 1);
    bench.pass(59);
    assert_eq!(bench.collect().await, CollectedCatalogs::default());
    bench.pass(2);
    assert_eq!(bench.collect().await.removed, 1);
    assert!(matches!(
        bench.catalogs.get(id).await,
        Err(CatalogError::Missing(_))
    ));
    assert_eq!(bench.references("text").await, 0);
    // The catalog can be stored again.
    bench
        .catalogs
        .put(&new(1, "text"))
        .await
        .expect("kept again");
    assert_eq!(bench.references("text").await, 1);
}

#[tokio::test]
async fn a_hold_that_comes_after_the_sentence_takes_it_back() {
    let (bench, id) = Bench::with_catalog().await;
    assert_eq!(bench.collect().await.condemned, 1);
    bench
        .catalogs
        .hold(id, "release/production/1")
        .await
        .expect("held");
    bench.pass(1_000);
    assert_eq!(bench.collect().await.removed, 0);
    bench.catalogs.get(id).await.expect("still there");
}

#[tokio::test]
async fn a_hold_loses_when_the_catalog_was_removed_meanwhile() {
    let (bench, id) = Bench::with_catalog().await;
    let transaction = bench
        .catalogs
        .hold_in(Transaction::new(), id, "x")
        .await
        .expect("there");
    bench.collect().await;
    bench.pass(61);
    assert_eq!(bench.collect().await.removed, 1);
    let outcome = bench.catalogs.store.commit(transaction).await;
    assert!(!outcome.expect("answered").is_committed());
}

#[tokio::test]
async fn a_dead_writer_leaves_nothing_behind_and_blocks_no_other_writer() {
    let bench = Bench::new(CatalogOptions::default()).await;
    let new = new(1, "text");
    let (id, files) = (
        new.catalog.id(),
        bench.catalogs.check(&new).expect("complete"),
    );
    // Simulates a process that ends after each of its steps.
    bench
        .catalogs
        .begin(id, &new, &files)
        .await
        .expect("a record");
    let found = bench.stored(id).await;
    let referrer = found.document.referrer(id);
    bench
        .catalogs
        .refer_to_files(&files, &referrer)
        .await
        .expect("referred to");
    assert!(
        bench.catalogs.record(id).await.expect("readable").is_none(),
        "half a catalog"
    );
    assert_eq!(bench.references("text").await, 1);

    bench.collect().await;
    bench.pass(61);
    assert_eq!(bench.collect().await.removed, 1);
    assert_eq!(bench.references("text").await, 0);

    bench
        .catalogs
        .begin(id, &new, &files)
        .await
        .expect("a record");
    let kept = bench.catalogs.put(&new).await.expect("another finishes it");
    assert_eq!(kept.0, id);
    bench.catalogs.get(id).await.expect("whole");
}

#[tokio::test]
async fn a_removal_that_died_is_finished_by_the_next_writer() {
    let (bench, id) = Bench::with_catalog().await;
    let found = bench.stored(id).await;
    let next = bench.catalogs.removing(&found.document);
    bench
        .catalogs
        .replace(id, &found, &next)
        .await
        .expect("answered")
        .expect("written");
    assert!(matches!(
        bench.catalogs.hold(id, "x").await,
        Err(CatalogError::Missing(_))
    ));
    bench.catalogs.put(&new(1, "text")).await.expect("kept");
    bench.catalogs.get(id).await.expect("whole");
    assert_eq!(bench.references("text").await, 1);
}

#[tokio::test]
async fn a_catalog_that_is_too_large_or_incomplete_is_refused_and_leaves_nothing() {
    let refused = async |options: CatalogOptions| {
        let bench = Bench::new(options).await;
        let error = bench.catalogs.put(&new(1, "text")).await;
        (error.expect_err("refused"), bench)
    };
    let (error, bench) = refused(CatalogOptions {
        max_size: 100,
        ..CatalogOptions::default()
    })
    .await;
    assert!(
        matches!(error, CatalogError::TooLarge { limit: 100, .. }),
        "{error}"
    );
    let stored = bench.catalogs.stored(new(1, "text").catalog.id()).await;
    assert!(stored.expect("readable").is_none());

    let (error, _) = refused(CatalogOptions {
        max_files: 0,
        ..CatalogOptions::default()
    })
    .await;
    assert!(
        matches!(error, CatalogError::TooManyFiles { .. }),
        "{error}"
    );

    let bench = Bench::new(CatalogOptions::default()).await;
    let mut lying = new(1, "text");
    lying.files[0].from = FileSource::Bytes(Bytes::from_static(b"other"));
    let error = bench.catalogs.put(&lying).await.expect_err("other bytes");
    assert!(matches!(error, CatalogError::Blob(_)), "{error}");
    lying.files.clear();
    let error = bench.catalogs.put(&lying).await.expect_err("no bytes");
    assert!(matches!(error, CatalogError::FileNotGiven(_)), "{error}");
}

/// Returns a catalog with this many files, the first of which has this text.
fn with_files(count: usize, first: &str) -> NewCatalog {
    let mut all = new(1, first);
    for number in 1..count {
        let one = new(1, &format!("file {number}"));
        let source = one.catalog.sources.into_values().next().expect("a source");
        let name = format!("salt://{number}");
        all.catalog.sources.insert(name, source);
        all.files.extend(one.files);
    }
    all
}

#[tokio::test]
async fn a_catalog_with_one_changed_file_of_forty_is_a_dozen_writes_at_most() {
    let directory = TempDir::new().expect("a directory");
    let inner = EmbeddedStore::open(directory.path(), EmbeddedOptions::default());
    let counter = Arc::new(WriteCounter::new(Arc::new(inner.await.expect("a store"))));
    let store: SharedStore = counter.clone();
    let blobs: SharedBlobs = Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default()));
    let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
    let catalogs = Catalogs::new(store, blobs.clone(), clock, CatalogOptions::default());
    let before = with_files(40, "before");
    catalogs.put(&before).await.expect("kept");
    counter.take();
    let after = with_files(40, "after");
    let (id, _) = catalogs.put(&after).await.expect("kept");
    let writes = counter.take();
    assert!(writes <= 12, "{writes} writes");
    assert_eq!(catalogs.get(id).await.expect("there"), after.catalog);
    for file in &after.files {
        let referrers = blobs.references(file.content).await.expect("readable");
        let is_new = file.content == ContentId::of(b"after");
        assert_eq!(referrers.len(), if is_new { 1 } else { 2 });
    }
}
