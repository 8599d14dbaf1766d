//! Somebody else at the same moment.

use std::sync::Arc;

use bunraku_model::ClaimId;
use bunraku_store::testing::{MeddledStore, MemoryStore};
use bunraku_wire::api::once::{ClaimOnce, ClaimReply, Work};
use uuid::Uuid;

use super::*;

fn app() -> AppName {
    AppName::new("app_1").expect("a name")
}

async fn define(store: &SharedStore, command: &str) {
    let operator = NodeName::new("operator").expect("a name");
    let asker = Asker {
        name: &operator,
        role: Role::Operator,
    };
    let definition = serde_json::json!({ "command": command });
    let definition = definition.as_object().expect("an object").clone();
    let once = Once::new(store.clone(), Clock::system());
    let defined = once.define(&app(), asker, &DefineOnce { definition }).await;
    defined.expect("defined");
}

#[tokio::test]
async fn nobody_starts_on_a_definition_that_changed_meanwhile() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    define(&store, "old").await;
    let below = store.clone();
    let meddled = Arc::new(MeddledStore::new(store, async move {
        define(&below, "new").await;
    }));
    let shared: SharedStore = meddled.clone();
    let node = NodeName::new("web-1").expect("a name");
    let asker = Asker {
        name: &node,
        role: Role::Node,
    };
    let request = ClaimOnce {
        claim: ClaimId(Uuid::now_v7()),
        lease_seconds: 60,
        retry: false,
    };
    let once = Once::new(shared, Clock::system());
    let claimed = once.claim(&app(), asker, &request).await;
    assert!(meddled.is_meddled());
    match claimed.expect("an answer") {
        ClaimReply::Granted { work, .. } => assert_eq!(work, Work::Shell("new".to_owned())),
        refused @ ClaimReply::Refused { .. } => panic!("{refused:?}"),
    }
}
