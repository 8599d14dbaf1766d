//! Records which nodes asked for the holders of a lock while they were
//! compiled, and compiles them again when the holders change.
//!
//! The answer that a node received is stored under the lock
//! (`lock-readers/<lock>/<node>`), and the lock is checked again after that. So
//! either the compile sees a change, or the change finds the reader. A server
//! that sees a reader with an outdated answer removes the reader and requests
//! its compile, in one transaction. The compile records the reader again if the
//! code still asks.

use std::collections::BTreeSet;
use std::time::Duration;

use bunraku_model::{LockName, NodeName};
use bunraku_store::{
    Change, Follow, FollowEvent, KeyValue, SharedStore, Swap, Transaction, compare_and_swap,
};
use bunraku_wire::api::CompileReason;
use serde::{Deserialize, Serialize};

use super::Compiles;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};
use bunraku_cues::locks::Locks;

/// Delay before an unavailable store is retried.
const RETRY: Duration = Duration::from_millis(500);

/// The answer that a reader received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LockAnswer {
    holders: Vec<String>,
}

/// Access to locks for one compile.
#[derive(Clone)]
pub struct LockReader {
    store: SharedStore,
    locks: Locks,
    node: NodeName,
    /// Compile the node again when the answer changes.
    kept: bool,
}

impl std::fmt::Debug for LockReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockReader")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl LockReader {
    /// Returns the current holders of a lock, each owner once.
    pub(super) async fn holders(&self, lock: &LockName) -> Result<Vec<String>, ServiceError> {
        let mut holders = self.locks.owners(lock).await?;
        if !self.kept {
            return Ok(holders);
        }
        loop {
            let lock_answer = LockAnswer {
                holders: holders.clone(),
            };
            self.store_answer(lock, &lock_answer).await?;
            let now = self.locks.owners(lock).await?;
            if now == holders {
                return Ok(holders);
            }
            holders = now;
        }
    }

    async fn store_answer(
        &self,
        lock: &LockName,
        lock_answer: &LockAnswer,
    ) -> Result<(), ServiceError> {
        let (key, lock_answer) = (
            keys::lock_reader(lock, &self.node),
            document::encode(lock_answer),
        );
        // Most compiles get the same answer as the one before.
        let known = self.store.get(&key).await?;
        if known.is_some_and(|known| known.value == lock_answer) {
            return Ok(());
        }
        self.store
            .commit(Transaction::new().put(key, lock_answer))
            .await?;
        Ok(())
    }
}

impl Compiles {
    /// Creates a reader for the templates of one node. With `kept`, the node is
    /// compiled again when its answer is outdated.
    pub(super) fn lock_reader(&self, node: &NodeName, kept: bool) -> LockReader {
        LockReader {
            store: self.inner.store.clone(),
            locks: self.locks(),
            node: node.clone(),
            kept,
        }
    }

    fn locks(&self) -> Locks {
        Locks::new(self.inner.store.clone(), self.inner.clock.clone())
    }

    /// Compiles readers again when their answers are outdated. Never returns.
    pub(super) async fn follow_locks(&self) {
        let mut locks = Follow::new(self.inner.store.clone(), keys::LOCKS);
        loop {
            let changed: BTreeSet<LockName> = match locks.next().await {
                // Changes may have happened while no server watched.
                Ok(FollowEvent::Snapshot { .. }) => {
                    self.until_done(|| self.check_all_readers()).await;
                    continue;
                }
                Ok(FollowEvent::Changes(batch)) => {
                    batch.changes.iter().filter_map(changed_lock).collect()
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot watch the locks; retrying");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            for lock in &changed {
                self.until_done(|| self.check_readers(lock)).await;
            }
        }
    }

    async fn until_done<W: Future<Output = Result<(), ServiceError>>>(&self, work: impl Fn() -> W) {
        while let Err(error) = work().await {
            tracing::warn!(error = %error, "cannot queue the nodes that read a lock; retrying");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn check_all_readers(&self) -> Result<(), ServiceError> {
        let readers = document::keys_under(&*self.inner.store, keys::LOCK_READERS).await?;
        let locks: BTreeSet<LockName> = readers
            .iter()
            .filter_map(|key| keys::parse_lock_reader(key))
            .map(|(lock, _)| lock)
            .collect();
        for lock in &locks {
            self.check_readers(lock).await?;
        }
        Ok(())
    }

    async fn check_readers(&self, lock: &LockName) -> Result<(), ServiceError> {
        let prefix = keys::lock_readers(lock);
        let readers = document::read_all(&*self.inner.store, &prefix).await?;
        if readers.is_empty() {
            return Ok(());
        }
        let holders = self.locks().owners(lock).await?;
        for reader in &readers {
            let lock_answer = document::decode::<LockAnswer>(reader);
            if !lock_answer.is_ok_and(|lock_answer| lock_answer.holders == holders) {
                self.compile_again(reader).await?;
            }
        }
        Ok(())
    }

    /// Removes a reader and requests its compile. Only one of several servers succeeds.
    async fn compile_again(&self, reader: &KeyValue) -> Result<(), ServiceError> {
        let store = &*self.inner.store;
        compare_and_swap(store, |_| async {
            // Another server may have been faster.
            let now = store.get(&reader.key).await?;
            if now.is_none_or(|now| now.modified != reader.modified) {
                return Ok(Swap::Done(()));
            }
            let out = || {
                Transaction::new()
                    .when_unchanged(&reader.key, Some(reader))
                    .delete(reader.key.clone())
            };
            let node = keys::parse_lock_reader(&reader.key).map(|(_, node)| node);
            let asked = match &node {
                None => Ok(out()),
                Some(node) => {
                    let reason = CompileReason::Lock;
                    self.inner.queue.request_in(out(), node, reason).await
                }
            };
            let transaction = match asked {
                Ok(transaction) => transaction,
                // The node was removed.
                Err(ServiceError::NotFound { .. }) => out(),
                Err(error) => return Err(error),
            };
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }
}

fn changed_lock(change: &Change) -> Option<LockName> {
    let key = match change {
        Change::Put(entry) => &entry.key,
        Change::Delete { key } => key,
    };
    keys::parse_lock_key(key)
}
