//! The contract on the store in memory, so that the results of simulations apply to the others.

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
