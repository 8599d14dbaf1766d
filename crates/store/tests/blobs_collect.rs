//! Collection never removes what is referred to, whoever races with it.

mod blob_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use blob_support::{Random, World, content, options, read};
use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobError, BlobOptions, CHUNK_SIZE, Collected, SharedBlobs};
use bunraku_store::{Range, Transaction};
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
            Collected::default(),
            "pinned"
        );
        blobs.reference(id, "catalog/1").await.expect("refers");
        put.pin.release().await.expect("releases");
        assert_eq!(
            blobs.collect(at(1)).await.expect("collects"),
            Collected::default(),
            "referred to"
        );
        blobs.unreference(id, "catalog/1").await.expect("lets go");

        let condemned = blobs.collect(at(10)).await.expect("collects");
        assert_eq!(
            condemned,
            Collected {
                condemned: 1,
                ..Collected::default()
            }
        );
        assert_eq!(
            blobs.collect(at(109)).await.expect("collects"),
            Collected::default()
        );
        assert_eq!(read(&*blobs, id).await.expect("is still there"), b"bytes");
        let removed = blobs.collect(at(110)).await.expect("collects");
        assert_eq!(
            removed,
            Collected {
                removed: 1,
                ..Collected::default()
            }
        );
        assert!(matches!(
            read(&*blobs, id).await,
            Err(BlobError::Missing(_))
        ));
        assert_eq!(world.kept().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_sentence_is_taken_back_by_whoever_wants_it() {
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
            assert_eq!(kept, Collected::default(), "want {want}");
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
        assert!(!world.kept().await.is_empty());

        // Written again before anyone cleared away: the old bytes are not the new ones.
        let again = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
        let collected = blobs.collect(at(0)).await.expect("collects");
        assert_eq!(
            collected,
            Collected {
                debris: 1,
                ..Collected::default()
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

/// What one worker holds references to, with the bytes that must be there.
type Held = BTreeMap<(ContentId, String), Arc<Vec<u8>>>;

struct Worker {
    blobs: SharedBlobs,
    random: Random,
    name: String,
    contents: Arc<Vec<Arc<Vec<u8>>>>,
    held: Held,
    seed: u64,
}

impl Worker {
    async fn round(&mut self, number: usize) {
        let bytes = Arc::clone(&self.contents[self.random.below(self.contents.len())]);
        let id = ContentId::of(&bytes);
        let referrer = format!("{}/{number}", self.name);
        let choice = if self.held.len() > 2 {
            5
        } else {
            self.random.below(6)
        };
        match choice {
            0 | 1 => {
                let put = self.blobs.put(&mut &bytes[..], None).await;
                let put = put.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
                self.blobs
                    .reference(id, &referrer)
                    .await
                    .unwrap_or_else(|error| {
                        panic!(
                            "seed {}: pinned, and cannot be referred to: {error}",
                            self.seed
                        )
                    });
                put.pin.release().await.expect("releases");
                self.held.insert((id, referrer), bytes);
            }
            2 => match self.blobs.reference(id, &referrer).await {
                Ok(()) => {
                    self.held.insert((id, referrer), bytes);
                }
                Err(BlobError::Missing(_)) => {}
                Err(other) => panic!("seed {}: {other}", self.seed),
            },
            3 => self.give_up_writing(number).await,
            _ => self.let_go().await,
        }
        self.check_one().await;
    }

    /// A writer that dies: its future is dropped somewhere on the way. Its
    /// content is its own, or its pin would keep the others' for long.
    async fn give_up_writing(&mut self, number: usize) {
        let bytes = format!("{} gives up in round {number}", self.name).into_bytes();
        let patience = Duration::from_micros(self.random.below(20_000) as u64);
        let _ = tokio::time::timeout(patience, self.blobs.put(&mut &bytes[..], None)).await;
    }

    async fn let_go(&mut self) {
        let nth = self.random.below(self.held.len().max(1));
        if let Some(key) = self.held.keys().nth(nth).cloned() {
            self.held.remove(&key);
            self.blobs
                .unreference(key.0, &key.1)
                .await
                .expect("lets go");
        }
    }

    async fn check_one(&mut self) {
        let nth = self.random.below(self.held.len().max(1));
        if let Some(((id, referrer), bytes)) = self.held.iter().nth(nth) {
            let found = read(&*self.blobs, *id).await.unwrap_or_else(|error| {
                panic!("seed {}: {referrer} refers to {id}: {error}", self.seed)
            });
            assert!(found == **bytes, "seed {}: wrong bytes of {id}", self.seed);
        }
    }
}

/// Writers, referrers and collectors on several servers, for many rounds.
async fn race(world: World, seed: u64, rounds: usize) {
    let sizes = [0, 10, 1000, 5000, 70_000, CHUNK_SIZE + 1];
    let contents: Vec<_> = (0..6)
        .map(|index| Arc::new(content(seed * 100 + index as u64, sizes[index])))
        .collect();
    let contents = Arc::new(contents);
    let stop = Arc::new(AtomicBool::new(false));
    let removed = Arc::new(AtomicUsize::new(0));

    let mut collectors = Vec::new();
    for number in 0..2 {
        let (blobs, stop, removed) = (world.open().await, Arc::clone(&stop), Arc::clone(&removed));
        collectors.push(tokio::spawn(async move {
            let mut random = Random::new(seed + 1000 + number);
            while !stop.load(Ordering::Relaxed) {
                // Clocks of servers differ, and jump.
                let now = at(i64::try_from(random.below(1000)).expect("small"));
                let collected = blobs.collect(now).await.expect("collects");
                removed.fetch_add(collected.removed, Ordering::Relaxed);
            }
        }));
    }
    let mut workers = Vec::new();
    for number in 0..4 {
        let mut worker = Worker {
            blobs: world.open().await,
            random: Random::new(seed * 10 + number),
            name: format!("worker-{number}"),
            contents: Arc::clone(&contents),
            held: Held::new(),
            seed,
        };
        workers.push(tokio::spawn(async move {
            for number in 0..rounds {
                worker.round(number).await;
            }
            worker.held
        }));
    }
    let mut held = Held::new();
    for worker in workers {
        held.extend(worker.await.expect("seed is in the panic above"));
    }
    stop.store(true, Ordering::Relaxed);
    for collector in collectors {
        collector.await.expect("collects");
    }
    assert!(
        removed.load(Ordering::Relaxed) > 0,
        "seed {seed}: nothing was ever removed"
    );
    settle(&world, seed, held).await;
}

/// In the end exactly what is referred to is there.
async fn settle(world: &World, seed: u64, held: Held) {
    let blobs = world.open().await;
    for ((id, _), bytes) in &held {
        assert!(
            read(&*blobs, *id).await.expect("is referred to") == **bytes,
            "seed {seed}"
        );
    }
    let mut wanted: Vec<_> = held.keys().map(|(id, _)| *id).collect();
    wanted.dedup();
    end_leases_of_the_dead(world).await;
    for round in 10..12 {
        blobs.collect(at(round * 1000)).await.expect("collects");
    }
    let listed = blobs.list(None).await.expect("lists");
    let ids: Vec<_> = listed.iter().map(|info| info.id).collect();
    assert_eq!(ids, wanted, "seed {seed}");
    if world.in_directory {
        assert_eq!(world.kept().await.len(), wanted.len(), "seed {seed}");
    }
    let scrubbed = blobs.scrub().await.expect("reads");
    assert_eq!(
        (scrubbed.checked, scrubbed.damaged.len()),
        (wanted.len(), 0),
        "seed {seed}"
    );
}

/// What time would do, had we the patience: their pins and uploads end.
async fn end_leases_of_the_dead(world: &World) {
    for prefix in ["blob-uploads/", "blob-pins/"] {
        let page = world
            .store
            .range(Range::prefix(prefix))
            .await
            .expect("reads");
        for lease in page.items.iter().filter_map(|item| item.lease) {
            // Several keys may be on one.
            let _ = world.store.lease_revoke(lease).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_a_directory_survives_every_race() {
    for seed in 1..=2 {
        race(World::new(true, options()).await, seed, 80).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_the_store_survives_every_race() {
    for seed in 11..=12 {
        race(World::new(false, options()).await, seed, 80).await;
    }
}
