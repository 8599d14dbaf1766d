//! Tests rollbacks with a store that stops anywhere.

use std::sync::Arc;

use bunraku_store::testing::{CutPoint, CutStore};
use bunraku_wire::api::RollbackRequest;

use super::apply::Extent;
use super::tests::{Site, compile, everything, production};
use super::*;

/// The number of nodes that are in the first release, and of all nodes.
const FIRST: usize = 3;
const ALL: usize = 6;

fn to_the_first() -> RollbackRequest {
    RollbackRequest {
        parent: None,
        release: Some(ReleaseNumber(1)),
        reason: None,
    }
}

async fn release_everything(site: &Site) {
    let releases = site.living().await;
    let created = releases.create(&production(), &everything(), "a").await;
    created.expect("created");
    site.finish().await;
}

#[tokio::test]
async fn a_server_that_dies_during_a_rollback_leaves_no_node_on_rolled_back_code() {
    for cut in [CutPoint::Before, CutPoint::After] {
        let mut step = 0;
        loop {
            let site = Site::new().await;
            let old = site.compile(FIRST, 1).await;
            release_everything(&site).await;
            site.compile(ALL, 2).await;
            release_everything(&site).await;
            assert_eq!(site.targets().await.len(), ALL);
            let mortal = Arc::new(CutStore::new(site.store.clone(), step, cut));
            let doomed = site
                .releases(mortal.clone(), ReleaseOptions::default())
                .await;
            let rolled = doomed.rollback(&production(), &to_the_first(), "b").await;
            let applied = doomed.apply(&production(), Extent::News).await;
            site.check().await;
            let survived = !mortal.is_cut();
            assert_eq!(survived, rolled.is_ok() && applied.is_ok(), "step {step}");
            // Another server finishes the rollback, or makes it.
            let other = site.living().await;
            let again = other.rollback(&production(), &to_the_first(), "c").await;
            again.expect("rolled back");
            site.finish().await;
            site.check().await;
            let targets = site.targets().await;
            let targets: Vec<_> = (targets.iter()).map(|known| known.target.catalog).collect();
            assert_eq!(targets, old, "step {step}: the others have no target");
            let newest = other.newest(&production()).await.expect("readable");
            assert_eq!(newest, Some(ReleaseNumber(3)), "made once, at step {step}");
            assert!(other.hold_of(&production()).await.expect("read").is_some());
            if survived {
                assert!(step > 4, "it died at {step} steps");
                break;
            }
            step += 1;
        }
    }
}

/// A commit that changes no catalog is released too: new nodes are compiled from it.
#[tokio::test]
async fn code_that_changes_nothing_counts_for_nodes_that_join_later() {
    let site = Site::new().await;
    let releases = site.living().await;
    let catalog = compile(&releases, 0, 1).await;
    release_everything(&site).await;
    let status = serde_json::json!({
        "environment": "production", "code_id": "c2", "at": "2026-02-01T00:00:00Z", "took_ms": 1,
        "outcome": {"outcome": "compiled", "catalog": catalog, "resources": 1, "changed": false},
    });
    let key = keys::compile_status(&super::tests::node(0));
    let put = bunraku_store::Transaction::new().put(key, documents::encode(&status));
    site.store.commit(put).await.expect("written");
    let created = releases.create(&production(), &everything(), "a").await;
    let release = created.expect("created").release.expect("a release");
    assert_eq!(release.changed, 0);
    let shown = releases.show(&production(), None).await.expect("shown");
    assert_eq!(shown.join_rules[0].code_id.0, "c2");
    let again = releases.create(&production(), &everything(), "a").await;
    assert_eq!(again.expect("nothing to do").release, None);
}
