//! Pins and references, which protect content from collection.
//!
//! Both are added in a transaction that compares the record's value and writes the record again.
//! Two that are added at once write the same value and do not conflict. The collector compares the
//! revision and loses.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use bunraku_model::ContentId;
use futures::future::join_all;
use uuid::Uuid;

use super::BlobError;
use super::record::{pins_prefix, record_key, references_prefix};
use super::stored::{BlobStore, FoundRecord};
use crate::{
    Compare, LeaseId, Range, SharedStore, StoreError, Swap, Transaction, compare_and_swap, limits,
    settle,
};

/// The number of references that one transaction adds. Each writes two keys.
const REFERENCES_AT_ONCE: usize = 50;

/// Keeps a content for a limited time. Dropping the pin does not end that time early.
pub struct Pin {
    pub(super) id: ContentId,
    pub(super) lease: LeaseId,
    pub(super) store: SharedStore,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin")
            .field("id", &self.id)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Pin {
    pub fn id(&self) -> ContentId {
        self.id
    }

    /// Restarts its time. Fails with [`BlobError::LeaseEnded`] if it has ended.
    pub async fn keep_alive(&self) -> Result<(), BlobError> {
        Ok(self.store.lease_keep_alive(self.lease).await?)
    }

    /// Ends the pin: the content is referenced now, or is not needed after all.
    pub async fn release(self) -> Result<(), BlobError> {
        match self.store.lease_revoke(self.lease).await {
            Ok(()) | Err(StoreError::LeaseNotFound(_)) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }
}

/// Pins that are taken while a decision is made, and released once it is settled: by then the
/// content is referenced, or not needed.
#[derive(Debug, Default)]
pub struct Pins(Mutex<Vec<Pin>>);

impl Pins {
    pub fn add(&self, pin: Pin) {
        let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pins.push(pin);
    }

    pub async fn release(self) -> Result<(), BlobError> {
        for pin in self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            pin.release().await?;
        }
        Ok(())
    }
}

pub(super) fn new_pin_key(id: ContentId) -> String {
    format!("{}{}", pins_prefix(id), Uuid::new_v4().simple())
}

/// Adds the conditions and writes that every pin and every reference needs.
pub(super) fn add_conditions(
    transaction: Transaction,
    id: ContentId,
    found: &FoundRecord,
) -> Transaction {
    let key = record_key(id);
    transaction
        .when(Compare::Value(key.clone(), found.stored.value.clone()))
        .put(key, found.record.reprieved().encode())
}

impl BlobStore {
    /// Finds content that exists and is not known to be damaged.
    async fn find_sound(&self, id: ContentId) -> Result<FoundRecord, BlobError> {
        let found = self.find(id).await?.ok_or(BlobError::Missing(id))?;
        if found.record.damaged {
            return Err(BlobError::damaged(id, "an earlier check found it corrupt"));
        }
        Ok(found)
    }

    pub(super) async fn take_pin(&self, id: ContentId) -> Result<Pin, BlobError> {
        self.find_sound(id).await?;
        let lease = self.store.lease_grant(self.options.pin_for).await?;
        let pin = Pin {
            id,
            lease,
            store: self.store.clone(),
        };
        let key = new_pin_key(id);
        let pinned = self
            .commit_wanted(id, |transaction| {
                transaction.put_with_lease(key.clone(), "", lease)
            })
            .await;
        match pinned {
            Ok(()) => Ok(pin),
            Err(error) => {
                let _ = pin.release().await;
                Err(error)
            }
        }
    }

    pub(super) async fn add_reference(
        &self,
        id: ContentId,
        referrer: &str,
    ) -> Result<(), BlobError> {
        let key = reference_key(id, referrer)?;
        self.commit_wanted(id, |transaction| transaction.put(key.clone(), ""))
            .await
    }

    pub(super) async fn add_references(
        &self,
        ids: &[ContentId],
        referrer: &str,
    ) -> Result<Vec<ContentId>, BlobError> {
        let ids: BTreeSet<ContentId> = ids.iter().copied().collect();
        let ids: Vec<ContentId> = ids.into_iter().collect();
        let mut unusable = Vec::new();
        for some in ids.chunks(REFERENCES_AT_ONCE) {
            let missing = compare_and_swap(&*self.store, |_| async {
                let found = join_all(some.iter().map(|id| self.find_sound(*id))).await;
                let (mut transaction, mut missing) = (Transaction::new(), Vec::new());
                for (id, found) in some.iter().zip(found) {
                    match found {
                        Ok(found) => {
                            let key = reference_key(*id, referrer)?;
                            transaction = add_conditions(transaction, *id, &found).put(key, "");
                        }
                        Err(BlobError::Missing(_)) => missing.push(*id),
                        Err(error) if error.is_damage() => missing.push(*id),
                        Err(error) => return Err(error),
                    }
                }
                if transaction.operations.is_empty() {
                    return Ok(Swap::Done(missing));
                }
                Ok::<_, BlobError>(Swap::Write(transaction, missing))
            });
            unusable.extend(missing.await?);
        }
        Ok(unusable)
    }

    /// Repeats the transaction until it is committed. Writing the same key again changes nothing,
    /// so an unknown outcome does not matter. Content that is missing or corrupt is a certain
    /// answer even after one: if the transaction had been committed, the content would exist.
    async fn commit_wanted(
        &self,
        id: ContentId,
        complete: impl Fn(Transaction) -> Transaction,
    ) -> Result<(), BlobError> {
        compare_and_swap(&*self.store, |_| async {
            match self.find_sound(id).await {
                Ok(found) => {
                    let transaction = complete(add_conditions(Transaction::new(), id, &found));
                    Ok(Swap::Write(transaction, Ok(())))
                }
                Err(error @ BlobError::Missing(_)) => Ok(Swap::Done(Err(error))),
                Err(error) if error.is_damage() => Ok(Swap::Done(Err(error))),
                Err(error) => Err(error),
            }
        })
        .await?
    }

    pub(super) async fn with_reference(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError> {
        let key = reference_key(id, referrer)?;
        let found = self.find_sound(id).await?;
        Ok(add_conditions(transaction, id, &found).put(key, ""))
    }

    pub(super) async fn remove_reference(
        &self,
        id: ContentId,
        referrer: &str,
    ) -> Result<(), BlobError> {
        let transaction = Transaction::new().delete(reference_key(id, referrer)?);
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    pub(super) async fn list_references(&self, id: ContentId) -> Result<Vec<String>, BlobError> {
        let prefix = references_prefix(id);
        let mut range = Range {
            keys_only: true,
            ..Range::prefix(prefix.clone())
        };
        let mut referrers = Vec::new();
        loop {
            let page = self.store.range(range.clone()).await?;
            range.after = page.items.last().map(|item| item.key.clone());
            let names = page.items.iter().map(|item| &item.key[prefix.len()..]);
            referrers.extend(names.map(str::to_owned));
            if !page.more {
                return Ok(referrers);
            }
        }
    }
}

pub(super) fn reference_key(id: ContentId, referrer: &str) -> Result<String, BlobError> {
    let key = format!("{}{referrer}", references_prefix(id));
    if referrer.is_empty() || limits::check_key(&key).is_err() {
        return Err(BlobError::Referrer(referrer.to_owned()));
    }
    Ok(key)
}
