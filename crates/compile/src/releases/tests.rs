//! Tests releases with a store that stops anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bunraku_model::{Catalog, CatalogId, CodeId, ContentId, NodeName};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs};
use bunraku_store::testing::{CutPoint, CutStore};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Transaction};
use bunraku_wire::api::{CreateRelease, ReleaseTo, RollbackRequest, RunMode};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::apply::{ApplyOutcome, Extent};
use super::*;
use crate::catalogs::{CatalogOptions, NewCatalog};
use crate::targets::StoredTarget;
use bunraku_control::NoQueries;

/// One store with any number of servers.
pub(super) struct Site {
    pub(super) store: SharedStore,
    pub(super) directory: TempDir,
    pub(super) minutes: Arc<AtomicI64>,
}

pub(super) fn production() -> EnvironmentName {
    EnvironmentName::new("production").expect("a name")
}

pub(super) fn node(number: usize) -> NodeName {
    NodeName::new(format!("node-{number:05}")).expect("a name")
}

pub(super) fn everything() -> CreateRelease {
    CreateRelease {
        parent: None,
        to: ReleaseTo::Everything,
        mode: RunMode::Enforce,
        reason: None,
    }
}

impl Site {
    pub(super) async fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("s");
        let store = EmbeddedStore::open(&path, EmbeddedOptions::default());
        Self {
            store: Arc::new(store.await.expect("a store")),
            directory,
            minutes: Arc::default(),
        }
    }

    /// Creates a server on this store.
    pub(super) async fn releases(&self, store: SharedStore, options: ReleaseOptions) -> Releases {
        let minutes = Arc::clone(&self.minutes);
        let clock = Clock::new(move || {
            Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes.load(Ordering::SeqCst))
        });
        let place = self.directory.path().join("b");
        let blobs = DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default());
        let blobs: SharedBlobs = Arc::new(blobs.await.expect("blobs"));
        let kept = CatalogOptions::default();
        let catalogs = Catalogs::new(store.clone(), blobs.clone(), clock.clone(), kept);
        Releases::new(store, blobs, catalogs, clock, Arc::new(NoQueries), options)
    }

    pub(super) async fn living(&self) -> Releases {
        let options = ReleaseOptions::default();
        self.releases(self.store.clone(), options).await
    }

    /// Compiles something new for this many nodes.
    pub(super) async fn compile(&self, nodes: usize, version: u64) -> Vec<CatalogId> {
        let releases = self.living().await;
        stream::iter(0..nodes)
            .map(|number| compile(&releases, number, version))
            .buffered(64)
            .collect()
            .await
    }

    /// Gives this many nodes these catalogs in turns: cheaper than one each.
    pub(super) async fn share(&self, nodes: usize, catalogs: &[CatalogId]) {
        let numbers: Vec<usize> = (0..nodes).collect();
        for batch in numbers.chunks(60) {
            let mut transaction = Transaction::new();
            for number in batch {
                let id = catalogs[number % catalogs.len()];
                let node = node(*number);
                let compiled = compiled(id, ContentId::of(b"text"), "c1");
                transaction = transaction
                    .put(keys::compiled(&node), documents::encode(&compiled))
                    .put(keys::node_record(&node), documents::encode(&record()));
            }
            self.store.commit(transaction).await.expect("written");
        }
    }

    pub(super) async fn targets(&self) -> Vec<StoredTarget> {
        let all = documents::read_all(&*self.store, keys::TARGETS).await;
        let all = all.expect("readable");
        all.iter()
            .map(|entry| documents::decode(entry).expect("a target"))
            .collect()
    }

    /// Another server finishes the remaining work.
    pub(super) async fn finish(&self) {
        let releases = self.living().await;
        let outcome = releases.apply(&production(), Extent::Everything).await;
        assert_eq!(outcome.expect("applied"), ApplyOutcome::Done);
    }

    /// Checks everything that must hold at any time.
    pub(super) async fn check(&self) {
        let releases = self.living().await;
        let head = releases.head(&production()).await.expect("readable");
        let number = number_of(&head).0;
        let (_, map) = releases
            .newest_map(&production(), &head)
            .await
            .expect("a map");
        for past in 1..=number {
            let document = releases.release(&production(), ReleaseNumber(past)).await;
            let document = document.expect("no gap");
            let map = releases.maps.read(&document.map).await.expect("its map");
            for catalog in map.values().filter_map(|entry| entry.catalog) {
                releases.catalogs.get(catalog).await.expect("kept");
                let holders = releases.catalogs.holders(catalog).await;
                let holders = holders.expect("readable");
                assert!(holders.contains(&holder(&production())), "{holders:?}");
            }
        }
        for target in self.targets().await {
            assert!(target.target.release.0 <= number, "ahead of its release");
            assert!(
                map.values()
                    .any(|entry| entry.since <= ReleaseNumber(number))
            );
        }
    }
}

fn compiled(catalog: CatalogId, content: ContentId, code_id: &str) -> Value {
    json!({
        "environment": "production", "catalog": catalog, "content": content, "code_id": code_id,
        "fact_set": ContentId::of(b"facts"), "compiled_at": "2026-01-01T00:00:00Z",
        "config_version": "1", "resources": 1,
    })
}

fn record() -> Value {
    json!({"joined": "2026-01-01T00:00:00Z",
        "administration": {"state": "enabled", "since": "2026-01-01T00:00:00Z"}})
}

pub(super) async fn compile(releases: &Releases, number: usize, version: u64) -> CatalogId {
    let node = node(number);
    let resource = json!({"type": "Notify", "title": "x", "parameters": {"version": version}});
    let code_id = CodeId(format!("c{version}"));
    let new = NewCatalog {
        node: node.clone(),
        environment: production(),
        code_id: code_id.clone(),
        catalog: Catalog {
            name: node.to_string(),
            resources: vec![serde_json::from_value(resource).expect("a resource")],
            ..Catalog::default()
        },
        files: Vec::new(),
    };
    let (id, content) = releases.catalogs.put(&new).await.expect("kept");
    let compiled = compiled(id, content, &code_id.0);
    let referrer = format!("compiled/{node}");
    loop {
        let before = documents::read::<compiled_catalogs::HeldCatalog>(
            &*releases.store,
            &keys::compiled(&node),
        )
        .await;
        let mut transaction = Transaction::new()
            .put(keys::compiled(&node), documents::encode(&compiled))
            .put(keys::node_record(&node), documents::encode(&record()));
        if let Some(before) = before.expect("readable")
            && before.document.catalog != id
        {
            let old = before.document.catalog;
            transaction = releases.catalogs.release_in(transaction, old, &referrer);
        }
        let held = releases.catalogs.hold_in(transaction, id, &referrer).await;
        let committed = releases.store.commit(held.expect("kept")).await;
        if committed.expect("committed").is_committed() {
            return id;
        }
    }
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_is_followed_by_another() {
    for cut in [CutPoint::Before, CutPoint::After] {
        let mut step = 0;
        loop {
            let site = Site::new().await;
            let first = site.compile(70, 1).await;
            site.living()
                .await
                .create(&production(), &everything(), "a")
                .await
                .expect("made");
            site.finish().await;
            let second = site.compile(70, 2).await;
            let mortal = Arc::new(CutStore::new(site.store.clone(), step, cut));
            let doomed = site
                .releases(mortal.clone(), ReleaseOptions::default())
                .await;
            let made = doomed.create(&production(), &everything(), "b").await;
            let applied = doomed.apply(&production(), Extent::News).await;
            site.check().await;
            let survived = !mortal.is_cut();
            assert_eq!(survived, made.is_ok() && applied.is_ok(), "step {step}");
            // Another server finishes the release, or creates it.
            let other = site.living().await;
            other
                .create(&production(), &everything(), "c")
                .await
                .expect("made");
            site.finish().await;
            site.check().await;
            let targets: BTreeSet<CatalogId> = site
                .targets()
                .await
                .iter()
                .map(|target| target.target.catalog)
                .collect();
            assert_eq!(targets, second.iter().copied().collect(), "step {step}");
            let newest = other.newest(&production()).await.expect("readable");
            assert_eq!(newest, Some(ReleaseNumber(2)), "made once, at step {step}");
            let old: BTreeSet<_> = site
                .targets()
                .await
                .iter()
                .filter_map(|target| target.previous)
                .collect();
            assert_eq!(old, first.iter().copied().collect(), "step {step}");
            if survived {
                assert!(step > 6, "it died at {step} steps");
                break;
            }
            step += 1;
        }
    }
}

#[tokio::test]
async fn ten_thousand_nodes_are_released_in_bounded_transactions() {
    let site = Site::new().await;
    site.share(10_000, &site.compile(200, 1).await).await;
    let counted = Arc::new(CutStore::new(
        site.store.clone(),
        u64::MAX,
        CutPoint::Before,
    ));
    let releases = site
        .releases(counted.clone(), ReleaseOptions::default())
        .await;
    let made = releases
        .create(&production(), &everything(), "a")
        .await
        .expect("made");
    assert_eq!(made.release.expect("a release").changed, 10_000);
    let outcome = releases
        .apply(&production(), Extent::News)
        .await
        .expect("applied");
    assert_eq!(outcome, ApplyOutcome::Done);
    assert_eq!(site.targets().await.len(), 10_000);
    let largest = counted.largest();
    assert!(
        largest <= bunraku_store::limits::MAX_OPERATIONS,
        "{largest}"
    );
    let commits = counted.writes();
    assert!(commits < 500, "{commits} transactions");
    // A change for one node costs only as much as one node.
    compile(&releases, 7, 2).await;
    let before = counted.writes();
    releases
        .create(&production(), &everything(), "a")
        .await
        .expect("made");
    releases
        .apply(&production(), Extent::News)
        .await
        .expect("applied");
    let commits = counted.writes() - before;
    assert!(commits < 12, "{commits} transactions for one node");
}

#[tokio::test]
async fn an_application_that_wakes_up_late_cannot_undo_a_newer_release() {
    let site = Site::new().await;
    site.compile(3, 1).await;
    let releases = site.living().await;
    releases
        .create(&production(), &everything(), "a")
        .await
        .expect("made");
    let old_head = releases
        .head(&production())
        .await
        .expect("readable")
        .expect("a head");
    let (_, old_map) = releases
        .newest_map(&production(), &Some(old_head))
        .await
        .expect("a map");
    let old_head = releases
        .head(&production())
        .await
        .expect("readable")
        .expect("a head");
    let second = site.compile(3, 2).await;
    releases
        .create(&production(), &everything(), "b")
        .await
        .expect("made");
    site.finish().await;
    let lines: Vec<_> = old_map.into_iter().collect();
    let late = releases
        .apply_batch(&production(), &old_head.entry, &lines)
        .await;
    assert_eq!(late.expect("an answer"), None, "overtaken");
    let targets: Vec<_> = site
        .targets()
        .await
        .iter()
        .map(|target| target.target.catalog)
        .collect();
    assert_eq!(targets, second);
}

#[tokio::test]
async fn of_two_concurrent_releases_one_is_refused_as_stale() {
    for _ in 0..10 {
        let site = Site::new().await;
        site.compile(5, 1).await;
        let (one, other) = (site.living().await, site.living().await);
        let on_nothing = CreateRelease {
            parent: Some(ReleaseNumber(0)),
            ..everything()
        };
        let environment = production();
        let (first, second) = tokio::join!(
            one.create(&environment, &on_nothing, "a"),
            other.create(&environment, &on_nothing, "b")
        );
        let refused = [first, second]
            .into_iter()
            .filter_map(Result::err)
            .collect::<Vec<_>>();
        assert_eq!(refused.len(), 1);
        assert!(
            matches!(&refused[0], ServiceError::Conflict { .. }),
            "{:?}",
            refused[0]
        );
        site.check().await;
    }
}

#[tokio::test]
async fn old_releases_go_and_what_is_current_its_parent_and_every_target_stay() {
    let site = Site::new().await;
    let few = ReleaseOptions {
        keep: 2,
        ..ReleaseOptions::default()
    };
    let releases = site.releases(site.store.clone(), few).await;
    let mut catalogs = Vec::new();
    for version in 1..=5 {
        catalogs.push(site.compile(2, version).await);
        releases
            .create(&production(), &everything(), "a")
            .await
            .expect("made");
        if version == 1 || version == 5 {
            site.finish().await;
        }
    }
    // The second node's target is still that of the first release, as after a crash.
    let stale = StoredTarget {
        previous: None,
        ..site.targets().await[1].clone()
    };
    let mut old = stale.clone();
    old.target.catalog = catalogs[0][1];
    let put = Transaction::new().put(keys::target(&node(1)), documents::encode(&old));
    site.store.commit(put).await.expect("written");
    let collected = releases.collect(&production()).await.expect("collected");
    assert_eq!(collected.forgotten, 3);
    let kept = documents::keys_under(&*site.store, &keys::releases(&production())).await;
    assert_eq!(kept.expect("readable").len(), 2);
    let holder = holder(&production());
    let mut held = Vec::new();
    for (version, pair) in catalogs.iter().enumerate() {
        for (number, id) in pair.iter().enumerate() {
            if releases
                .catalogs
                .holders(*id)
                .await
                .expect("readable")
                .contains(&holder)
            {
                held.push((version + 1, number));
            }
        }
    }
    // 4 and 5 by releases; of 1, the one that the stale target names, and the
    // previous one of the other target.
    assert_eq!(held, [(1, 0), (1, 1), (4, 0), (4, 1), (5, 0), (5, 1)]);
    assert_eq!(collected.released, 4);
    // A server that was creating a release then starts over, and nothing is lost.
    let again = releases.collect(&production()).await.expect("collected");
    assert_eq!((again.forgotten, again.released), (0, 0));
    let gone = RollbackRequest {
        parent: None,
        release: Some(ReleaseNumber(1)),
        reason: None,
    };
    let refused = releases.rollback(&production(), &gone, "a").await;
    assert!(matches!(refused, Err(ServiceError::NotFound { .. })));
    site.minutes.fetch_add(24 * 60, Ordering::SeqCst);
    releases.catalogs.collect().await.expect("condemned");
    site.minutes.fetch_add(24 * 60, Ordering::SeqCst);
    let removed = releases.catalogs.collect().await.expect("removed").removed;
    assert_eq!(removed, 4);
    for id in catalogs[3].iter().chain(&catalogs[4]) {
        releases.catalogs.get(*id).await.expect("kept");
    }
}

#[tokio::test]
async fn a_release_that_is_being_made_while_catalogs_are_let_go_holds_them_again() {
    let site = Site::new().await;
    site.compile(1, 1).await;
    let releases = site.living().await;
    releases
        .create(&production(), &everything(), "a")
        .await
        .expect("made");
    site.finish().await;
    let second = site.compile(1, 2).await;
    let head = releases.head(&production()).await.expect("readable");
    // The release has held its catalogs and is about to commit; the collector
    // runs in between.
    releases
        .catalogs
        .hold(second[0], &holder(&production()))
        .await
        .expect("held");
    assert_eq!(
        releases
            .collect(&production())
            .await
            .expect("collected")
            .released,
        1
    );
    let now = releases.head(&production()).await.expect("readable");
    let revision = |head: &StoredHead| head.as_ref().map(|head| head.entry.modified);
    assert_ne!(
        revision(&head),
        revision(&now),
        "the one that is being made must start over"
    );
    releases
        .create(&production(), &everything(), "b")
        .await
        .expect("made");
    site.check().await;
}
