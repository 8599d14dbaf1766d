//! The contract of history in memory, so that the results of simulations apply to the others.

use std::sync::Arc;

use bunraku_store::contract::history::{HistorySubject, opaque_head};
use bunraku_store::testing::{MemoryHistory, MemoryStore};

async fn make_history() -> HistorySubject {
    HistorySubject {
        history: Arc::new(MemoryHistory::new()),
        store: Arc::new(MemoryStore::new()),
        acknowledge: opaque_head,
        drops_events: true,
        keep: Arc::new(()),
    }
}

bunraku_store::history_contract_suite!(make_history);
