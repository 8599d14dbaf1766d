//! Where everything that must last is kept.
//!
//! [`Store`] holds small values under keys, with transactions, watches and
//! leases. Two backends keep one contract: the embedded one (a directory, no
//! other software) and etcd. Every write that depends on a read is a
//! transaction whose compares name what was read.
//!
//! Keys are UTF-8 paths without a leading slash (`nodes/web-1/facts`). Values
//! are small: pointers and coordination. What is large belongs in blobs.

pub mod blobs;
#[cfg(feature = "contract")]
pub mod contract;
pub mod embedded;
mod error;
pub mod etcd;
mod follow;
mod held_port;
mod key_value;
mod lease;
pub mod limits;
pub mod stale;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;

pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use error::StoreError;
pub use follow::{Follow, Followed};
pub use held_port::HeldPort;
pub use key_value::{KeyValue, Range, RangePage, Revision};
pub use lease::{LeaseId, LeaseStatus};
pub use stale::NoMajority;
pub use transaction::{Compare, Operation, Transaction, TransactionOutcome};
pub use watch::{Change, WatchBatch, WatchStart, WatchStream};

/// A store that is shared by everything in a process.
pub type SharedStore = Arc<dyn Store>;

/// Keys, transactions, watches and leases. See the module's notes for the contract.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The newest value of one key. Linearizable, unless the task allowed otherwise
    /// (see [`stale`]); the same holds for [`Store::range`].
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;

    /// The newest values under a prefix, in key order, a page at a time. Linearizable.
    async fn range(&self, range: Range) -> Result<RangePage, StoreError>;

    /// Commits all operations if every compare holds, and none otherwise.
    ///
    /// What changes nothing makes no revision, and is committed at the newest one.
    /// A key may be written once in a transaction (see [`limits`]).
    ///
    /// When this returns, the outcome is durable. [`StoreError::OutcomeUnknown`]
    /// means that it may or may not have been committed: read before trying again.
    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError>;

    /// Everything that changes under a prefix, in order of revision, each
    /// revision's events together, none lost and none twice for as long as the
    /// stream is read. A connection that breaks underneath is resumed.
    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError>;

    /// For how long no majority of the datastores has answered, as far as is
    /// known here; nothing while one does. A store of one's own always has one.
    fn without_majority_for(&self) -> Option<std::time::Duration> {
        None
    }

    /// A new lease that ends `ttl` after its last keep-alive, also across restarts:
    /// never earlier, and a little later where a backend counts in whole seconds.
    async fn lease_grant(&self, ttl: std::time::Duration) -> Result<LeaseId, StoreError>;

    /// Starts the lease's time anew. [`StoreError::LeaseNotFound`] once it has ended.
    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends the lease now, and deletes the keys that are bound to it.
    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// What is left of the lease.
    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError>;

    /// Forgets history before `revision`. The newest value of each key stays, and a
    /// watch at `revision` is still possible. [`StoreError::Invalid`] if `revision` is
    /// yet to come; nothing to do if that history is gone already.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;
}
