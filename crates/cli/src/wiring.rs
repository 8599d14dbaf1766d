//! The seam through which a test program changes how the server is put together.

use bunraku_store::SharedStore;

/// Wrappers that a program puts between parts of the server. The `bunraku` binary uses none.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Between the services of a cluster's server and its store.
    pub store: fn(SharedStore) -> SharedStore,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            store: |store| store,
        }
    }
}
