//! The contract, on the store in memory: what a simulation shows holds for the others.

use std::sync::Arc;

use bunraku_store::contract::Subject;
use bunraku_store::testing::MemoryStore;

async fn make_store() -> Subject {
    Subject {
        store: Arc::new(MemoryStore::new()),
        keep: Box::new(()),
    }
}

bunraku_store::contract_suite!(make_store);
