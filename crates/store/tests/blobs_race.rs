//! Collection never removes referenced content, regardless of concurrent work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::blob_support::forgetful::Forgetful;
use crate::blob_support::{Kind, World, content, options, place, read};
use bunraku_model::ContentId;
use bunraku_store::Range;
use bunraku_store::blobs::{BlobError, CHUNK_SIZE, SharedBlobs};
use bunraku_store::contract::Random;
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use jiff::Timestamp;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

/// The references of one worker, with the bytes that must exist.
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
        let bytes = Arc::clone(&self.contents[place(&mut self.random, self.contents.len())]);
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
            _ => self.unreference().await,
        }
        self.check_one().await;
    }

    /// Simulates a writer that dies: its future is dropped at some point. Its content is unique,
    /// because its pin would keep shared content for long.
    async fn give_up_writing(&mut self, number: usize) {
        let bytes = format!("{} gives up in round {number}", self.name).into_bytes();
        let patience = Duration::from_micros(self.random.below(20_000));
        let _ = tokio::time::timeout(patience, self.blobs.put(&mut &bytes[..], None)).await;
    }

    async fn unreference(&mut self) {
        let nth = place(&mut self.random, self.held.len());
        if let Some(key) = self.held.keys().nth(nth).cloned() {
            self.held.remove(&key);
            self.blobs
                .unreference(key.0, &key.1)
                .await
                .expect("lets go");
        }
    }

    async fn check_one(&mut self) {
        let nth = place(&mut self.random, self.held.len());
        if let Some(((id, referrer), bytes)) = self.held.iter().nth(nth) {
            let found = read(&*self.blobs, *id).await.unwrap_or_else(|error| {
                panic!("seed {}: {referrer} refers to {id}: {error}", self.seed)
            });
            assert!(found == **bytes, "seed {}: wrong bytes of {id}", self.seed);
        }
    }
}

/// Runs writers, referrers and collectors on several servers, for many rounds.
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
            let mut random = Random(seed + 1000 + number);
            while !stop.load(Ordering::Relaxed) {
                // The clocks of servers differ, and jump.
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
            random: Random(seed * 10 + number),
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

/// Checks that in the end exactly the referenced content exists.
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
    // Condemn, remove, clear away. More rounds than needed, because answers may have been lost.
    for round in 10..20 {
        blobs.collect(at(round * 1000)).await.expect("collects");
    }
    let listed = blobs.list(None).await.expect("lists");
    let ids: Vec<_> = listed.iter().map(|info| info.id).collect();
    assert_eq!(ids, wanted, "seed {seed}");
    if world.kind != Kind::Store {
        assert_eq!(
            world.stored_names().await.len(),
            wanted.len(),
            "seed {seed}"
        );
    }
    let scrubbed = blobs.scrub().await.expect("reads");
    assert_eq!(
        (scrubbed.checked, scrubbed.damaged.len()),
        (wanted.len(), 0),
        "seed {seed}"
    );
}

/// Ends the pins and uploads of dead writers, as time would.
async fn end_leases_of_the_dead(world: &World) {
    for prefix in ["blob-uploads/", "blob-pins/"] {
        let page = world
            .store
            .range(Range::prefix(prefix))
            .await
            .expect("reads");
        for lease in page.items.iter().filter_map(|item| item.lease) {
            // Several keys may share one lease.
            let _ = world.store.lease_revoke(lease).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_a_directory_survives_every_race() {
    for seed in 1..=2 {
        race(World::new(Kind::Directory, options()).await, seed, 80).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_the_store_survives_every_race() {
    for seed in 11..=12 {
        race(World::new(Kind::Store, options()).await, seed, 80).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_s3_survives_every_race() {
    race(World::new(Kind::S3, options()).await, 16, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_in_etcd_survives_every_race() {
    let cluster = EtcdCluster::start(1).await;
    let store = EtcdStore::connect(cluster.options("/race/"))
        .await
        .expect("connects");
    race(World::in_store(Arc::new(store), options()), 21, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_survives_a_store_that_forgets_to_answer() {
    for (seed, kind) in [(31, Kind::Directory), (32, Kind::Store), (33, Kind::S3)] {
        let mut world = World::new(kind, options()).await;
        world.store = Arc::new(Forgetful {
            store: Arc::clone(&world.store),
            random: Mutex::new(Random(seed)),
        });
        race(world, seed, 80).await;
    }
}
