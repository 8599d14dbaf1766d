//! Tests of collection: the removed content, the time of removal, and the ways to prevent it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::blob_support::{Kind, World, content, options, read};
use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobError, BlobOptions, CollectionSummary};
use bunraku_store::testing::Overlay;
use bunraku_store::{Range, RangePage, SharedStore, StoreError, Transaction};
use jiff::Timestamp;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

fn graceful() -> BlobOptions {
    BlobOptions {
        grace: Duration::from_secs(100),
        ..options()
    }
}

#[tokio::test]
async fn what_nothing_refers_to_goes_after_its_grace() {
    for world in World::all(graceful()).await {
        let blobs = world.open().await;
        let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        let id = put.info.id;

        assert_eq!(
            blobs.collect(at(0)).await.expect("collects"),
            CollectionSummary::default(),
            "pinned"
        );
        blobs.reference(id, "catalog/1").await.expect("refers");
        put.pin.release().await.expect("releases");
        assert_eq!(
            blobs.collect(at(1)).await.expect("collects"),
            CollectionSummary::default(),
            "referred to"
        );
        blobs.unreference(id, "catalog/1").await.expect("lets go");

        let condemned = blobs.collect(at(10)).await.expect("collects");
        assert_eq!(
            condemned,
            CollectionSummary {
                condemned: 1,
                ..CollectionSummary::default()
            }
        );
        assert_eq!(
            blobs.collect(at(109)).await.expect("collects"),
            CollectionSummary::default()
        );
        assert_eq!(read(&*blobs, id).await.expect("is still there"), b"bytes");
        let removed = blobs.collect(at(110)).await.expect("collects");
        assert_eq!(
            removed,
            CollectionSummary {
                removed: 1,
                ..CollectionSummary::default()
            }
        );
        assert!(matches!(
            read(&*blobs, id).await,
            Err(BlobError::Missing(_))
        ));
        assert_eq!(world.stored_names().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_scheduled_deletion_is_cancelled_by_a_new_reference() {
    for world in World::all(graceful()).await {
        for want in 0..3 {
            let blobs = world.open().await;
            let bytes = content(want, 1000);
            let id = ContentId::of(&bytes);
            let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
            put.pin.release().await.expect("releases");
            blobs.collect(at(0)).await.expect("condemns");
            // Another server, or the same after a crash.
            let blobs = world.open().await;
            match want {
                0 => drop(blobs.put(&mut &bytes[..], None).await.expect("writes")),
                1 => drop(blobs.pin(id).await.expect("pins")),
                _ => blobs.reference(id, "test").await.expect("refers"),
            }
            let kept = blobs.collect(at(1000)).await.expect("collects");
            assert_eq!(kept, CollectionSummary::default(), "want {want}");
            assert_eq!(read(&*blobs, id).await.expect("reads"), bytes);
        }
    }
}

#[tokio::test]
async fn a_crash_between_the_record_and_the_bytes_leaves_only_debris() {
    for world in World::all(graceful()).await {
        let blobs = world.open().await;
        let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        put.pin.release().await.expect("releases");
        let key = format!("blobs/{}", put.info.id);
        let record = world.store.get(&key).await.expect("reads").expect("exists");
        let record: serde_json::Value = serde_json::from_slice(&record.value).expect("JSON");
        let mut deletion = Transaction::new().delete(key);
        if world.kind == Kind::S3 {
            // The transaction that deletes the record leaves a note.
            let upload = record["upload"].as_str().expect("an id").replace('-', "");
            deletion = deletion.put(format!("blob-objects/{upload}"), "");
        }
        world.store.commit(deletion).await.expect("deletes");
        assert!(!world.stored_names().await.is_empty());

        // Written again before the collector ran: the old bytes are not the new ones.
        let again = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        let collected = blobs.collect(at(0)).await.expect("collects");
        assert_eq!(
            collected,
            CollectionSummary {
                debris: 1,
                ..CollectionSummary::default()
            }
        );
        assert_eq!(read(&*blobs, again.info.id).await.expect("reads"), b"bytes");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_back_does_not_keep_garbage_for_ever() {
    let world = World::new(Kind::Directory, graceful()).await;
    let blobs = world.open().await;
    let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
    put.pin.release().await.expect("releases");
    blobs
        .collect(at(1_000_000))
        .await
        .expect("condemns, in the future");
    assert_eq!(blobs.collect(at(0)).await.expect("collects").condemned, 1);
    assert_eq!(blobs.collect(at(100)).await.expect("collects").removed, 1);
}

#[tokio::test]
async fn a_reference_and_what_it_is_for_are_one_transaction() {
    for world in World::all(graceful()).await {
        let blobs = world.open().await;
        let id = ContentId::of(b"bytes");
        let missing = blobs.reference_in(Transaction::new(), id, "node").await;
        assert!(matches!(missing, Err(BlobError::Missing(_))), "{missing:?}");

        let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        let prepared = blobs
            .reference_in(
                Transaction::new().put("catalog", id.to_string()),
                id,
                "node",
            )
            .await
            .expect("prepares");
        put.pin.release().await.expect("releases");
        blobs.collect(at(0)).await.expect("condemns");
        blobs.collect(at(100)).await.expect("removes");
        let late = world.store.commit(prepared).await.expect("answers");
        assert!(!late.is_committed(), "refers to what is gone");
        assert!(world.store.get("catalog").await.expect("reads").is_none());
    }
}

/// Counts the requests that read.
struct CountingStore {
    inner: SharedStore,
    reads: AtomicUsize,
}

impl Overlay for CountingStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_range(&self, range: Range) -> Result<RangePage, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.range(range).await
    }
}

/// Writes the keys of an upload with a reference, without its steps.
fn add_blob(transaction: Transaction, id: ContentId, upload: uuid::Uuid) -> Transaction {
    let record = format!("{{\"upload\":\"{upload}\",\"size\":8}}");
    let chunks = format!("blob-chunks/{}", upload.simple());
    transaction
        .put(format!("blobs/{id}"), record)
        .put(format!("{chunks}/manifest"), "")
        .put(format!("blob-refs/{id}/catalog/1"), "")
}

/// Above a thousand records, they are read in shares.
#[tokio::test]
async fn a_collection_reads_many_blobs_per_request_and_removes_only_garbage() {
    for count in [300, 2_500] {
        let world = World::new(Kind::Store, options()).await;
        let ids: Vec<ContentId> = (0..count)
            .map(|number: u32| ContentId::of(&number.to_le_bytes()))
            .collect();
        for some in ids.chunks(30) {
            let added = some.iter().fold(Transaction::new(), |transaction, id| {
                add_blob(transaction, *id, uuid::Uuid::new_v4())
            });
            world.store.commit(added).await.expect("written");
        }
        // One has thousands of references, two have none, one upload has no record.
        for some in 0..30 {
            let references = (0..100).fold(Transaction::new(), |transaction, number| {
                transaction.put(format!("blob-refs/{}/n/{some}-{number}", ids[0]), "")
            });
            world.store.commit(references).await.expect("written");
        }
        for id in &ids[1..3] {
            let key = format!("blob-refs/{id}/catalog/1");
            let deleted = world.store.commit(Transaction::new().delete(key)).await;
            deleted.expect("deleted");
        }
        let leftover = format!("blob-chunks/{}/manifest", uuid::Uuid::new_v4().simple());
        let leftover = world
            .store
            .commit(Transaction::new().put(leftover, ""))
            .await;
        leftover.expect("written");
        let store = Arc::new(CountingStore {
            inner: world.store.clone(),
            reads: AtomicUsize::new(0),
        });
        let counted = World::in_store(store.clone(), options());
        let blobs = counted.open().await;
        let condemned = blobs.collect(at(0)).await.expect("collects");
        assert_eq!((condemned.condemned, condemned.debris), (2, 1), "{count}");
        let reads = store.reads.load(Ordering::Relaxed);
        let most = if count > 1_000 { 3 * 256 + 20 } else { 20 };
        assert!(reads < most, "{reads} requests for {count} blobs");
        let removed = blobs.collect(at(10)).await.expect("collects");
        assert_eq!(removed.removed, 2, "{count}");
        let mut left = Vec::new();
        loop {
            let page = blobs.list(left.last().copied()).await.expect("listed");
            if page.is_empty() {
                break;
            }
            left.extend(page.iter().map(|info| info.id));
        }
        let mut expected: Vec<ContentId> = ids.clone();
        expected.drain(1..3);
        expected.sort();
        assert_eq!(left, expected);
    }
}
