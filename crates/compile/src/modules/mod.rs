//! Extension modules on servers: published packages, trusted keys, and the
//! modules that an environment names.
//!
//! A package is bytes of unknown origin until it is verified against the keys
//! that servers trust. No part of it is stored before that. Servers never run a
//! module: they read its manifest and serve its bytes to nodes, which verify
//! them again against their own keys.
//!
//! Every change is one transaction that compares everything it was based on,
//! and writes its history entry. This includes the keys, so that a revocation
//! cannot be missed.

mod fetch;
mod history;
mod named;
mod pins;
mod publish;
mod reach;
mod trust;

use std::path::{Path, PathBuf};

use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;

pub use fetch::{FetchError, ModuleSource, fetch};
pub(crate) use named::{NamedModule, read_named};
pub use pins::PinnedModules;
pub use reach::{ModuleReach, OutOfReach};

use bunraku_control::clock::Clock;

/// Maximum size of a package in bytes.
pub const LARGEST_PACKAGE: u64 = 64 << 20;

/// Handle for modules.
#[derive(Clone)]
pub struct Modules {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    /// Packages that environments name, by hash. Only a cache.
    directory: PathBuf,
}

impl Modules {
    pub fn new(store: SharedStore, blobs: SharedBlobs, clock: Clock, data_dir: &Path) -> Self {
        Self {
            store,
            blobs,
            clock,
            directory: data_dir.join("modules"),
        }
    }
}
