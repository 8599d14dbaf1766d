//! Extension modules on servers: published packages, whose signatures count,
//! and what an environment names.
//!
//! A package is bytes of unknown origin until it was verified against the
//! keys that servers trust; only then anything of it is kept. Nothing of a
//! module ever runs here: servers read its manifest, and hand its bytes to
//! nodes, which verify them again against keys of their own.
//!
//! Every change is one transaction that compares what it was decided on (the
//! keys among it, so that a revocation cannot be missed), and writes its line
//! of history with it.

mod fetch;
mod history;
mod named;
mod pins;
mod publish;
mod trust;

use std::path::{Path, PathBuf};

use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;

pub use fetch::{FetchError, ModuleSource, fetch};
pub use pins::PinnedModules;

use bunraku_control::clock::Clock;

/// The largest package that is taken.
pub const LARGEST_PACKAGE: u64 = 64 << 20;

/// The handle on modules.
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
