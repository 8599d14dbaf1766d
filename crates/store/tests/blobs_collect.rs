//! Tests of collection: the removed content, the time of removal, and the ways to prevent it.

use std::time::Duration;

use crate::blob_support::{World, content, options, read};
use bunraku_model::ContentId;
use bunraku_store::Transaction;
use bunraku_store::blobs::{BlobError, BlobOptions, CollectionSummary};
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
    for world in World::both(graceful()).await {
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
    for world in World::both(graceful()).await {
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
    for world in World::both(graceful()).await {
        let blobs = world.open().await;
        let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        put.pin.release().await.expect("releases");
        let key = format!("blobs/{}", put.info.id);
        world
            .store
            .commit(Transaction::new().delete(key))
            .await
            .expect("deletes");
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
    let world = World::new(true, graceful()).await;
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
    for world in World::both(graceful()).await {
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
