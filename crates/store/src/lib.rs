//! Storage for all durable data.
//!
//! [`Store`] holds small values under keys, with transactions, watches and leases. Two backends
//! implement one contract: the embedded one (a directory, no other software) and etcd. Every write
//! that depends on a read is a transaction whose compares name the values that were read.
//!
//! Keys are UTF-8 paths without a leading slash (`nodes/web-1/facts`). Values are small: pointers
//! and coordination. Large data belongs in blobs.

pub mod blobs;
mod compare_and_swap;
#[cfg(feature = "contract")]
pub mod contract;
pub mod embedded;
mod error;
pub mod etcd;
mod follow;
mod held_port;
pub mod history;
mod key_value;
mod lease;
pub mod limits;
mod reserve;
mod settle;
mod space;
pub mod stale;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transaction;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;

pub use compare_and_swap::{Swap, compare_and_swap, newest_revision, read_each, read_together};
pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use error::StoreError;
pub use follow::{Follow, FollowEvent};
pub use held_port::HeldPort;
pub use key_value::{KeyValue, Range, RangePage, Revision};
pub use lease::{LeaseId, LeaseStatus};
pub use reserve::ReserveStore;
pub use settle::{Settled, settle};
pub use space::{MemberSpace, SpaceLevel, StoreSpace};
pub use stale::NoMajority;
pub use transaction::{Compare, Operation, Transaction, TransactionOutcome};
pub use watch::{Change, WatchBatch, WatchStart, WatchStream};

/// A store shared by everything in a process.
pub type SharedStore = Arc<dyn Store>;

/// Keys, transactions, watches and leases. See the crate documentation for the contract.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the newest value of one key. Linearizable, unless the task allows old data (see
    /// [`stale`]); the same holds for [`Store::range`].
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError>;

    /// Returns the newest values under a prefix, in key order, one page at a time. Linearizable.
    async fn range(&self, range: Range) -> Result<RangePage, StoreError>;

    /// Commits all operations if every compare holds, and none otherwise.
    ///
    /// A transaction that changes nothing creates no revision, and is committed at the newest one.
    /// Each key may be written once per transaction (see [`limits`]).
    ///
    /// When this returns, the outcome is durable. [`StoreError::OutcomeUnknown`] means that the
    /// transaction may or may not have been committed: use [`settle()`] or [`compare_and_swap()`].
    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError>;

    /// Returns all changes under a prefix, in order of revision, with the events of each revision
    /// together. No change is lost or repeated while the stream is read. A broken connection is
    /// resumed automatically.
    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError>;

    /// Returns the space that the store uses, as last observed, if the store knows it.
    fn space(&self) -> Option<StoreSpace> {
        None
    }

    /// Observes the space that the store uses now.
    async fn observe_space(&self) -> Result<Option<StoreSpace>, StoreError> {
        Ok(self.space())
    }

    /// Returns unused space, so that it no longer counts towards the quota, and clears the alarm
    /// of a backend that refuses writes once there is room. Members pause one after the other, the
    /// leader last, and only while all of them are healthy.
    async fn reclaim_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the percentage of the store's quota that is used, if the store knows it.
    fn fullness(&self) -> Option<u8> {
        self.space()?.used_percentage()
    }

    /// Returns the time since a majority of the datastores last answered, as far as is known here;
    /// `None` while one answers. A local store always has a majority.
    fn without_majority_for(&self) -> Option<std::time::Duration> {
        None
    }

    /// Creates a lease that ends `ttl` after its last keep-alive, even across restarts. It never
    /// ends earlier, and ends slightly later where a backend counts in whole seconds.
    async fn lease_grant(&self, ttl: std::time::Duration) -> Result<LeaseId, StoreError>;

    /// Restarts the lease's time. Fails with [`StoreError::LeaseNotFound`] once it has ended.
    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends the lease now, and deletes the keys bound to it.
    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Returns the remaining time of the lease, and its keys.
    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError>;

    /// Drops history before `revision`. The newest value of each key stays, and a watch at
    /// `revision` is still possible. Fails with [`StoreError::Invalid`] if `revision` is in the
    /// future; does nothing if that history is already gone.
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;
}
