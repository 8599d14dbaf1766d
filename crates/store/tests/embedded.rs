//! The contract on the embedded store.

use std::sync::Arc;

use bunraku_store::contract::Subject;
use bunraku_store::{EmbeddedOptions, EmbeddedStore};

async fn make_store() -> Subject {
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default()).await;
    Subject {
        store: Arc::new(store.expect("the store opens")),
        keep: Box::new(directory),
    }
}

/// Keeps almost nothing in memory: every watch that is not at the very end reads history from disk.
mod from_disk {
    use super::*;

    async fn make_store() -> Subject {
        let directory = tempfile::tempdir().expect("a directory");
        let options = EmbeddedOptions {
            recent_bytes: 0,
            ..EmbeddedOptions::default()
        };
        let store = EmbeddedStore::open(directory.path(), options).await;
        Subject {
            store: Arc::new(store.expect("the store opens")),
            keep: Box::new(directory),
        }
    }

    bunraku_store::contract_suite!(make_store);
}

bunraku_store::contract_suite!(make_store);
