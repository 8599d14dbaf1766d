//! Tests of the place of content, with a real S3 server.

use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_store::testing::{Overlay, S3Server};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Range, RangePage, StoreError};

use super::*;

struct World {
    store: SharedStore,
    s3: S3Server,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default()).await;
        Self {
            store: Arc::new(store.expect("a store")),
            s3: S3Server::start().await,
            _directory: directory,
        }
    }

    fn blobs(&self, with_s3: bool) -> SharedBlobs {
        let blobs = StoreBlobs::in_store(self.store.clone(), BlobOptions::default());
        if with_s3 {
            Arc::new(blobs.with_s3(&self.s3.options()).expect("valid settings"))
        } else {
            Arc::new(blobs)
        }
    }

    async fn open(
        &self,
        with_s3: bool,
        wanted: ContentPlace,
    ) -> Result<ContentPlacement, ServiceError> {
        let (store, blobs) = (self.store.clone(), self.blobs(with_s3));
        let ttl = Duration::from_secs(2);
        ContentPlacement::open(store, blobs, Clock::system(), "test", ttl, wanted).await
    }

    /// Registers a server that has these places.
    async fn register(&self, name: &str, places: &[&str]) {
        let value = serde_json::json!({"registered": "2026-01-01T00:00:00Z", "places": places});
        let key = format!("{}{name}", keys::SERVERS);
        let put = Transaction::new().put(key, value.to_string());
        self.store.commit(put).await.expect("written");
    }
}

async fn put(placement: &ContentPlacement, bytes: &[u8]) {
    let put = placement.blobs.put(&mut &bytes[..], None).await;
    put.expect("written");
}

async fn contents(placement: &ContentPlacement) -> [u64; 2] {
    let status = placement.status().await.expect("a status");
    [0, 1].map(|place: usize| status.places[place].contents)
}

#[tokio::test]
async fn a_fleet_begins_with_the_configured_place_and_stays_where_it_is() {
    let world = World::new().await;
    let first = world.open(true, ContentPlace::S3).await.expect("opens");
    put(&first, b"one").await;
    assert_eq!(contents(&first).await, [0, 1]);
    // Configured differently, a server still uses the fleet's place.
    let second = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    put(&second, b"two").await;
    assert_eq!(contents(&second).await, [0, 2]);
    let refused = world.open(false, ContentPlace::Default).await.err();
    let text = refused.expect("it has no settings").to_string();
    assert!(
        text.contains("this server has no settings for S3"),
        "{text}"
    );

    let other = World::new().await;
    let old = other
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    put(&old, b"one").await;
    let again = other.open(true, ContentPlace::S3).await.expect("opens");
    put(&again, b"two").await;
    assert_eq!(contents(&again).await, [2, 0]);
}

#[tokio::test]
async fn content_is_not_moved_to_where_a_server_cannot_read_it() {
    let world = World::new().await;
    let placement = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    world.register("1", &["default", "s3"]).await;
    world.register("2", &["default"]).await;
    let refused = placement.start_move(ContentPlace::S3, "alice").await;
    let text = refused.expect_err("the second lacks it").to_string();
    assert_eq!(text, "1 of 2 servers have no settings for S3");
    world.register("2", &["default", "s3"]).await;
    placement
        .start_move(ContentPlace::S3, "alice")
        .await
        .expect("starts");
    assert_eq!(placement.blobs.active_place(), ContentPlace::S3);
}

#[tokio::test]
async fn the_leader_moves_content_there_and_back_and_another_continues() {
    let world = World::new().await;
    let first = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    for number in 0..20_u8 {
        put(&first, &[number; 100]).await;
    }
    let second = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    for (place, expected) in [
        (ContentPlace::S3, [0, 20]),
        (ContentPlace::Default, [20, 0]),
    ] {
        // The one that starts the move dies at once.
        first.start_move(place, "alice").await.expect("starts");
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (second, stop) = (second.clone(), stop.clone());
            async move { second.run(stop).await }
        });
        let done = async {
            while second.status().await.expect("a status").leaving.is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), done)
            .await
            .expect("it is moved");
        assert_eq!(contents(&second).await, expected);
        assert_eq!(second.blobs.active_place(), place);
        stop.cancel();
        running.await.expect("ends");
    }
}

/// Somebody starts a move while the leader looks for content.
struct MoveDuringCheck {
    inner: SharedStore,
    is_moved: AtomicBool,
}

impl Overlay for MoveDuringCheck {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_range(&self, range: Range) -> Result<RangePage, StoreError> {
        if range.prefix == "blobs/80" && !self.is_moved.swap(true, Ordering::Relaxed) {
            let record = PlacementRecord {
                active: ContentPlace::S3,
                leaving: Some(ContentPlace::Default),
                ..PlacementRecord::default()
            };
            let put = Transaction::new().put(keys::CONTENT_PLACE, document::encode(&record));
            self.inner.commit(put).await?;
        }
        self.inner.range(range).await
    }
}

#[tokio::test]
async fn a_move_that_starts_during_a_check_is_noticed() {
    let mut world = World::new().await;
    let first = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    put(&first, b"content").await;
    world.store = Arc::new(MoveDuringCheck {
        inner: world.store.clone(),
        is_moved: AtomicBool::new(false),
    });
    let placement = world
        .open(true, ContentPlace::Default)
        .await
        .expect("opens");
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (placement, stop) = (placement.clone(), stop.clone());
        async move { placement.run(stop).await }
    });
    let done = async {
        while contents(&placement).await != [0, 1] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), done)
        .await
        .expect("it is moved");
    stop.cancel();
    running.await.expect("ends");
}
