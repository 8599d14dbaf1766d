//! The seam through which a test program changes the assembly of the server.

use bunraku_store::SharedStore;

/// Wrappers that a program puts between parts of the server. The `bunraku` binary uses none.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Wraps the store that the services of a server use.
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
