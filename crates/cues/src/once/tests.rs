//! Once tasks with concurrent callers.

use std::sync::Arc;

use bunraku_model::ClaimId;
use bunraku_store::testing::{CutPoint, CutStore, InterferingStore, MemoryStore};
use bunraku_wire::api::once::{ClaimOnce, ClaimReply, KeepClaim, OnceAction};
use uuid::Uuid;

use super::*;

fn app() -> AppName {
    AppName::new("app_1").expect("a name")
}

async fn define(store: &SharedStore, command: &str) {
    let operator = NodeName::new("operator").expect("a name");
    let asker = CueCaller::new(&operator, Role::Operator);
    let definition = serde_json::json!({ "command": command, "init_on": ["web-1"] });
    let definition = definition.as_object().expect("an object").clone();
    let once = Once::new(store.clone(), Clock::system());
    let defined = once.define(&app(), asker, &DefineOnce { definition }).await;
    defined.expect("defined");
}

#[tokio::test]
async fn no_claim_is_granted_on_a_definition_that_changed_meanwhile() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    define(&store, "old").await;
    let below = store.clone();
    let meddled = Arc::new(InterferingStore::new(store, async move {
        define(&below, "new").await;
    }));
    let shared: SharedStore = meddled.clone();
    let node = NodeName::new("web-1").expect("a name");
    let asker = CueCaller::new(&node, Role::Node);
    let once = Once::new(shared, Clock::system());
    let claimed = once.claim(&app(), asker, &claim_for(60)).await;
    assert!(meddled.is_meddled());
    match claimed.expect("an answer") {
        ClaimReply::Granted { work, .. } => assert_eq!(work, OnceAction::Shell("new".to_owned())),
        refused @ ClaimReply::Refused { .. } => panic!("{refused:?}"),
    }
}

fn claim_for(lease_seconds: u64) -> ClaimOnce {
    ClaimOnce {
        claim: ClaimId(Uuid::now_v7()),
        lease_seconds,
        retry: false,
    }
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease_and_its_log_is_bounded() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    define(&store, "true").await;
    // Never cut off: it only counts the writes, including those to leases.
    let counting = Arc::new(CutStore::new(store, u64::MAX, CutPoint::Before));
    let shared: SharedStore = counting.clone();
    let once = Once::new(shared, Clock::system());
    let node = NodeName::new("web-1").expect("a name");
    let asker = CueCaller::new(&node, Role::Node);
    for lease in [0, 24 * 3_600 + 1] {
        let refused = once.claim(&app(), asker, &claim_for(lease)).await;
        assert!(
            matches!(refused, Err(ServiceError::Invalid { .. })),
            "{lease}"
        );
    }
    let claimed = once.claim(&app(), asker, &claim_for(3_600)).await;
    let ClaimReply::Granted { attempt, .. } = claimed.expect("an answer") else {
        panic!("nobody else asks")
    };
    let before = counting.writes();
    let silent = KeepClaim { log: None };
    let kept = once.keep_alive(&app(), attempt.token, asker, &silent).await;
    kept.expect("kept");
    assert_eq!(counting.writes(), before + 1, "the lease starts again");
    let alive = KeepClaim {
        log: Some("é".repeat(200_000)),
    };
    let kept = once.keep_alive(&app(), attempt.token, asker, &alive).await;
    kept.expect("kept");
    let log = once.show(&app(), asker).await.expect("shown").log;
    let log = log.expect("a log");
    assert!(
        log.len() <= 128 * 1_024 && log.ends_with('é'),
        "{}",
        log.len()
    );
}
