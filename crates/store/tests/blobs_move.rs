//! Content is moved between places while it is written, read, referenced and collected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::blob_support::{Kind, World, content, options, read};
use bunraku_model::{ContentId, error_chain};
use bunraku_store::blobs::{
    Blobs, CHUNK_SIZE, ContentPlace, PlaceUsage, RelocationSummary, SharedBlobs, StoreBlobs,
};
use bunraku_store::contract::Random;
use bunraku_store::testing::{CutPoint, CutStore, FaultProxy, ProxyFault, S3Server};
use bunraku_store::{Range, SharedStore};
use futures::TryStreamExt;
use jiff::Timestamp;

fn open(store: SharedStore, s3: &S3Server, active: ContentPlace) -> SharedBlobs {
    let blobs = StoreBlobs::in_store(store, options());
    let blobs = blobs.with_s3(&s3.options()).expect("valid settings");
    blobs.activate(active).expect("it has both");
    Arc::new(blobs)
}

async fn move_all(blobs: &SharedBlobs) -> RelocationSummary {
    let mut moved = RelocationSummary::default();
    for share in 0..=u8::MAX {
        match blobs.relocate(share).await {
            Ok(some) => moved.add(some),
            Err(error) => panic!("{}", error_chain(&error)),
        }
    }
    moved
}

async fn add(blobs: &SharedBlobs, bytes: &[u8]) -> ContentId {
    let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
    blobs.reference(put.info.id, "test").await.expect("refers");
    put.pin.release().await.expect("releases");
    put.info.id
}

fn usage(contents: u64, bytes: u64) -> PlaceUsage {
    PlaceUsage { contents, bytes }
}

#[tokio::test]
async fn content_moves_there_and_back_and_nothing_is_left_behind() {
    let s3 = S3Server::start().await;
    let world = World::new(Kind::Store, options()).await;
    let blobs = open(world.store.clone(), &s3, ContentPlace::Default);
    let sizes = [0, 10, 5_000, CHUNK_SIZE, 2 * CHUNK_SIZE + 7];
    let contents: Vec<Vec<u8>> = (1..)
        .zip(sizes)
        .map(|(seed, size)| content(seed, size))
        .collect();
    for bytes in &contents {
        add(&blobs, bytes).await;
    }
    let bytes = sizes.iter().sum::<usize>() as u64;
    for (place, other) in [
        (ContentPlace::S3, ContentPlace::Default),
        (ContentPlace::Default, ContentPlace::S3),
    ] {
        assert_eq!(
            blobs.usage().await.expect("counts"),
            [(other, usage(5, bytes))].into()
        );
        blobs.activate(place).expect("it has both");
        let moved = move_all(&blobs).await;
        assert_eq!((moved.moved, moved.bytes, moved.stuck), (5, bytes, vec![]));
        assert_eq!(
            blobs.usage().await.expect("counts"),
            [(place, usage(5, bytes))].into()
        );
        for bytes in &contents {
            let id = ContentId::of(bytes);
            assert!(read(&*blobs, id).await.expect("reads") == *bytes);
            assert_eq!(blobs.references(id).await.expect("lists"), ["test"]);
        }
        let objects = s3.objects().await.len();
        let chunks = world.stored_names().await.len();
        match place {
            ContentPlace::S3 => assert_eq!((objects, chunks), (5, 0)),
            ContentPlace::Default => assert_eq!((objects, chunks > 0), (0, true)),
        }
        assert_eq!(move_all(&blobs).await, RelocationSummary::default(), "done");
    }
}

#[tokio::test]
async fn a_read_that_is_under_way_continues_where_the_content_is_now() {
    let s3 = S3Server::start().await;
    let world = World::new(Kind::Store, options()).await;
    let blobs = open(world.store.clone(), &s3, ContentPlace::Default);
    let bytes = content(1, 4 * CHUNK_SIZE + 1);
    let id = add(&blobs, &bytes).await;
    for place in [ContentPlace::S3, ContentPlace::Default] {
        let mut stream = blobs.open(id).await.expect("opens");
        let mut found = stream
            .try_next()
            .await
            .expect("reads")
            .expect("a chunk")
            .to_vec();
        blobs.activate(place).expect("it has both");
        assert_eq!(move_all(&blobs).await.moved, 1);
        while let Some(more) = stream.try_next().await.expect("reads on") {
            found.extend_from_slice(&more);
        }
        assert!(found == bytes, "{place}");
    }
}

#[tokio::test]
async fn damaged_content_is_reported_and_does_not_stop_the_others() {
    let s3 = S3Server::start().await;
    let world = World::new(Kind::Store, options()).await;
    let blobs = open(world.store.clone(), &s3, ContentPlace::S3);
    let broken = add(&blobs, b"broken").await;
    let name = s3.objects().await.remove(0);
    s3.remove(&name).await;
    let sound = add(&blobs, b"sound").await;
    blobs.activate(ContentPlace::Default).expect("it has both");
    let moved = move_all(&blobs).await;
    assert_eq!(moved.moved, 1);
    let [(id, why)] = &moved.stuck[..] else {
        panic!("{moved:?}");
    };
    assert_eq!(*id, broken);
    assert!(why.ends_with("does not exist"), "{why}");
    assert_eq!(read(&*blobs, sound).await.expect("reads"), b"sound");
}

/// The server that moves content dies before and after each of its writes.
#[tokio::test]
async fn a_move_that_is_cut_off_anywhere_is_continued_by_the_next() {
    let s3 = S3Server::start().await;
    for (from, to) in [
        (ContentPlace::Default, ContentPlace::S3),
        (ContentPlace::S3, ContentPlace::Default),
    ] {
        for cut in [CutPoint::Before, CutPoint::After] {
            for at in 0.. {
                let world = World::new(Kind::Store, options()).await;
                let blobs = open(world.store.clone(), &s3, from);
                let contents = [content(1, 100), content(2, CHUNK_SIZE + 100)];
                for bytes in &contents {
                    add(&blobs, bytes).await;
                }
                let cut_store = Arc::new(CutStore::new(world.store.clone(), at, cut));
                let dying = open(cut_store.clone(), &s3, to);
                let mut is_stopped = false;
                let shares = contents
                    .each_ref()
                    .map(|bytes| ContentId::of(bytes).as_bytes()[0]);
                for share in shares {
                    is_stopped |= dying.relocate(share).await.is_err();
                }
                // The last writes only tidy up: a move that loses one of them is complete.
                let is_cut = cut_store.is_cut();
                assert!(is_cut || !is_stopped, "{at}");
                let next = open(world.store.clone(), &s3, to);
                for bytes in &contents {
                    let found = read(&*next, ContentId::of(bytes)).await;
                    assert!(found.expect("reads") == *bytes, "cut {cut:?} {at}");
                }
                for share in shares {
                    next.relocate(share).await.expect("moves");
                }
                end_leases(&world.store).await;
                next.collect(Timestamp::now()).await.expect("collects");
                let found = next.usage().await.expect("counts");
                assert_eq!(found.keys().copied().collect::<Vec<_>>(), [to]);
                let (objects, chunks) =
                    (s3.objects().await.len(), world.stored_names().await.len());
                let expected = if to == ContentPlace::S3 {
                    (2, 0)
                } else {
                    (0, 5)
                };
                assert_eq!((objects, chunks), expected, "cut {cut:?} {at}");
                let scrubbed = next.scrub().await.expect("reads");
                assert_eq!((scrubbed.checked, scrubbed.damaged), (2, vec![]));
                for name in s3.objects().await {
                    s3.remove(&name).await;
                }
                if !is_cut {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_move_waits_for_s3_and_loses_nothing() {
    let world = World::new(Kind::S3, options()).await;
    let s3 = world.s3.as_ref().expect("a server");
    let proxy = FaultProxy::start(s3.port()).await;
    let mut settings = s3.options_through(proxy.port());
    settings.retry_for = Duration::ZERO;
    let blobs = StoreBlobs::in_store(world.store.clone(), options());
    let blobs: SharedBlobs = Arc::new(blobs.with_s3(&settings).expect("valid settings"));
    let id = add(&blobs, b"bytes").await;
    blobs.activate(ContentPlace::S3).expect("it has both");
    proxy.set(ProxyFault::AnswerWrites(507, "QuotaExceeded"));
    let share = id.as_bytes()[0];
    let error = blobs.relocate(share).await.expect_err("S3 is full");
    assert!(error.is_place_failure(), "{error:?}");
    assert_eq!(read(&*blobs, id).await.expect("reads"), b"bytes");
    proxy.set(ProxyFault::None);
    assert_eq!(blobs.relocate(share).await.expect("moves").moved, 1);
    assert_eq!(read(&*blobs, id).await.expect("reads"), b"bytes");
}

/// Writers, readers and collectors work on one server while another one moves everything back and
/// forth.
#[tokio::test(flavor = "multi_thread")]
async fn referenced_content_survives_moves_back_and_forth() {
    let s3 = S3Server::start().await;
    let world = World::new(Kind::Store, options()).await;
    let working = open(world.store.clone(), &s3, ContentPlace::Default);
    let moving = open(world.store.clone(), &s3, ContentPlace::Default);
    let collector = tokio::spawn({
        let blobs = working.clone();
        async move {
            loop {
                blobs.collect(Timestamp::now()).await.expect("collects");
                tokio::task::yield_now().await;
            }
        }
    });
    let mover = tokio::spawn(async move {
        let mut moved = 0;
        // The first rounds may find nothing yet.
        while moved < 3 {
            for place in [ContentPlace::S3, ContentPlace::Default, ContentPlace::S3] {
                moving.activate(place).expect("it has both");
                moved += move_all(&moving).await.moved;
            }
        }
    });
    let (mut random, mut held) = (Random(5), BTreeMap::<ContentId, Vec<u8>>::new());
    let mut round = 0;
    while !mover.is_finished() || round < 60 {
        round += 1;
        let bytes = content(random.below(12), 100 + CHUNK_SIZE * (round % 2));
        let id = ContentId::of(&bytes);
        let place = [ContentPlace::Default, ContentPlace::S3][round / 3 % 2];
        working.activate(place).expect("it has both");
        if held.remove(&id).is_some() {
            working.unreference(id, "test").await.expect("lets go");
        } else {
            add(&working, &bytes).await;
            held.insert(id, bytes);
        }
        for (id, bytes) in &held {
            let found = read(&*working, *id).await;
            let found = found.unwrap_or_else(|error| panic!("{id}: {}", error_chain(&error)));
            assert!(found == *bytes);
        }
    }
    mover.await.expect("moves");
    collector.abort();
    let _ = collector.await;
    end_leases(&world.store).await;
    working.activate(ContentPlace::S3).expect("it has both");
    move_all(&working).await;
    for _ in 0..3 {
        working.collect(Timestamp::now()).await.expect("collects");
    }
    let found = working.usage().await.expect("counts");
    let contents = found.values().map(|place| place.contents).sum::<u64>();
    assert_eq!(contents, held.len() as u64);
    assert_eq!(s3.objects().await.len(), held.len());
    assert_eq!(world.stored_names().await, Vec::<String>::new());
}

/// Ends the uploads and pins of dead servers, as time would.
async fn end_leases(store: &SharedStore) {
    for prefix in ["blob-uploads/", "blob-pins/"] {
        let page = store.range(Range::prefix(prefix)).await.expect("reads");
        for lease in page.items.iter().filter_map(|item| item.lease) {
            let _ = store.lease_revoke(lease).await;
        }
    }
}
