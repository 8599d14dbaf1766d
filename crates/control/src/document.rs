//! Typed JSON documents in the store.
//!
//! [`update`] is the one loop for "read, decide, write if nobody wrote
//! meanwhile": every service goes through it instead of writing its own.

use bunraku_store::{KeyValue, Range, Store, StoreError, Transaction, TransactionOutcome};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ServiceError;

/// Keys that one transaction deletes.
const FORGOTTEN_AT_ONCE: usize = 100;

/// A document with the revision at which it was read.
pub struct Stored<T> {
    pub document: T,
    pub entry: KeyValue,
}

/// The bytes of a document.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(document).expect("documents are plain data that JSON can hold"))
}

/// The document in an entry.
pub fn decode<T: DeserializeOwned>(entry: &KeyValue) -> Result<T, ServiceError> {
    serde_json::from_slice(&entry.value).map_err(|source| ServiceError::Document {
        key: entry.key.clone(),
        source,
    })
}

/// The document at a key.
pub async fn read<T: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<Stored<T>>, ServiceError> {
    match store.get(key).await? {
        None => Ok(None),
        Some(entry) => Ok(Some(Stored {
            document: decode(&entry)?,
            entry,
        })),
    }
}

/// Every entry under a prefix, page by page.
pub async fn read_all(store: &dyn Store, prefix: &str) -> Result<Vec<KeyValue>, StoreError> {
    read_pages(store, Range::prefix(prefix)).await
}

/// Every key under a prefix.
pub async fn keys_under(store: &dyn Store, prefix: &str) -> Result<Vec<String>, StoreError> {
    let range = Range {
        keys_only: true,
        ..Range::prefix(prefix)
    };
    Ok(read_pages(store, range)
        .await?
        .into_iter()
        .map(|entry| entry.key)
        .collect())
}

/// Deletes what is first under a prefix until no more than `kept` are left:
/// where keys begin with their time, what is oldest.
pub async fn forget_oldest(
    store: &dyn Store,
    prefix: &str,
    kept: usize,
) -> Result<(), ServiceError> {
    let all = keys_under(store, prefix).await?;
    for chunk in all[..all.len().saturating_sub(kept)].chunks(FORGOTTEN_AT_ONCE) {
        let transaction = chunk.iter().fold(Transaction::new(), Transaction::delete);
        store.commit(transaction).await?;
    }
    Ok(())
}

async fn read_pages(store: &dyn Store, mut range: Range) -> Result<Vec<KeyValue>, StoreError> {
    let mut all = Vec::new();
    loop {
        let page = store.range(range.clone()).await?;
        let last = page.items.last().map(|item| item.key.clone());
        all.extend(page.items);
        if !page.more || last.is_none() {
            return Ok(all);
        }
        range.after = last;
    }
}

/// What an update decides to do with what it read.
pub enum Decision<T> {
    Write(T),
    /// It is fine as it is.
    Keep,
}

/// Reads a document, lets `decide` say what it should become, and writes that
/// only if nobody wrote meanwhile; otherwise decides again on what is there now.
///
/// Gives back the document as it is afterwards. `decide` may be called several
/// times and must have no effects.
pub async fn update<T, F>(
    store: &dyn Store,
    key: &str,
    mut decide: F,
) -> Result<Option<T>, ServiceError>
where
    T: Serialize + DeserializeOwned,
    F: FnMut(Option<T>) -> Result<Decision<T>, ServiceError>,
{
    let mut entry = store.get(key).await?;
    loop {
        let current = entry.as_ref().map(decode::<T>).transpose()?;
        let next = match decide(current)? {
            Decision::Keep => return entry.as_ref().map(decode::<T>).transpose(),
            Decision::Write(next) => next,
        };
        let transaction = Transaction::new()
            .when_unchanged(key, entry.as_ref())
            .put(key, encode(&next))
            .read_on_failure(key);
        match store.commit(transaction).await? {
            TransactionOutcome::Committed(_) => return Ok(Some(next)),
            TransactionOutcome::Refused(reads) => entry = reads.into_iter().next().flatten(),
        }
    }
}
