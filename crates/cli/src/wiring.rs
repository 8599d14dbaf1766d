//! The seam through which a test program changes how the server is put together.

use bunraku_store::SharedStore;

/// Wrappers that a program puts between parts of the server. The `bunraku` binary uses none.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Between the services of a server and its store.
    pub store: fn(SharedStore) -> SharedStore,
    /// Delays requests and replies (`RouterOptions::delay`).
    pub delay: Option<fn() -> std::time::Duration>,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            store: |store| store,
            delay: None,
        }
    }
}
