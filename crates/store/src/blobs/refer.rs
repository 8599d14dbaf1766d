//! Pins and references, which protect content from collection.
//!
//! Both are added in a transaction that compares the record's value and writes the record again.
//! Two that are added at once write the same value and do not conflict. The collector compares the
//! revision and loses.

use bunraku_model::ContentId;
use uuid::Uuid;

use super::BlobError;
use super::kept::{Found, KeptBlobs};
use super::place::Place;
use super::record::{pins_prefix, record_key, references_prefix};
use crate::{
    Compare, LeaseId, Range, SharedStore, StoreError, Transaction, TransactionOutcome, limits,
};

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

pub(super) fn new_pin_key(id: ContentId) -> String {
    format!("{}{}", pins_prefix(id), Uuid::new_v4().simple())
}

/// Adds the conditions and writes that every pin and every reference needs.
pub(super) fn wanted(transaction: Transaction, id: ContentId, found: &Found) -> Transaction {
    let key = record_key(id);
    transaction
        .when(Compare::Value(key.clone(), found.stored.value.clone()))
        .put(key, found.record.reprieved().encode())
}

impl<P: Place> KeptBlobs<P> {
    /// Finds content that exists and is not known to be damaged.
    async fn find_sound(&self, id: ContentId) -> Result<Found, BlobError> {
        let found = self.find(id).await?.ok_or(BlobError::Missing(id))?;
        if found.record.damaged {
            return Err(BlobError::damaged(
                id,
                "it was found so when it was checked",
            ));
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

    /// Repeats the transaction until it is committed. Writing the same key again changes nothing,
    /// so an unknown outcome does not matter.
    async fn commit_wanted(
        &self,
        id: ContentId,
        complete: impl Fn(Transaction) -> Transaction,
    ) -> Result<(), BlobError> {
        let mut unknown = 0;
        loop {
            let found = self.find_sound(id).await?;
            let transaction = complete(wanted(Transaction::new(), id, &found));
            match self.store.commit(transaction).await {
                Ok(TransactionOutcome::Committed(_)) => return Ok(()),
                Ok(TransactionOutcome::Refused(_)) => {}
                Err(StoreError::OutcomeUnknown(_)) if unknown < ATTEMPTS => unknown += 1,
                Err(other) => return Err(other.into()),
            }
        }
    }

    pub(super) async fn with_reference(
        &self,
        transaction: Transaction,
        id: ContentId,
        referrer: &str,
    ) -> Result<Transaction, BlobError> {
        let key = reference_key(id, referrer)?;
        let found = self.find_sound(id).await?;
        Ok(wanted(transaction, id, &found).put(key, ""))
    }

    pub(super) async fn remove_reference(
        &self,
        id: ContentId,
        referrer: &str,
    ) -> Result<(), BlobError> {
        let transaction = Transaction::new().delete(reference_key(id, referrer)?);
        commit_repeatable(&self.store, &transaction).await?;
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

/// The maximum number of attempts when the outcome is unknown.
pub(super) const ATTEMPTS: usize = 5;

/// Commits an idempotent transaction, and repeats it if the outcome is unknown.
pub(super) async fn commit_repeatable(
    store: &SharedStore,
    transaction: &Transaction,
) -> Result<TransactionOutcome, StoreError> {
    let mut unknown = 0;
    loop {
        match store.commit(transaction.clone()).await {
            Err(StoreError::OutcomeUnknown(_)) if unknown < ATTEMPTS => unknown += 1,
            answered => return answered,
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
