//! Typed JSON documents in the store.
//!
//! [`update`] changes one document. Services that change several keys at once use
//! [`compare_and_swap`], which it is built on.

use std::sync::{Mutex, PoisonError};

use bunraku_store::{
    KeyValue, Range, Store, StoreError, Swap, Transaction, compare_and_swap, settle,
};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ServiceError;

/// The number of keys that one transaction deletes.
const FORGOTTEN_AT_ONCE: usize = 100;

/// A document with the revision at which it was read.
pub struct Versioned<T> {
    pub document: T,
    pub entry: KeyValue,
}

/// The bytes of a document.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(document).expect("documents are plain data that JSON can hold"))
}

/// Decodes the document in an entry.
pub fn decode<T: DeserializeOwned>(entry: &KeyValue) -> Result<T, ServiceError> {
    serde_json::from_slice(&entry.value).map_err(|source| ServiceError::Document {
        key: entry.key.clone(),
        source,
    })
}

/// Reads the document at a key.
pub async fn read<T: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<Versioned<T>>, ServiceError> {
    match store.get(key).await? {
        None => Ok(None),
        Some(entry) => Ok(Some(Versioned {
            document: decode(&entry)?,
            entry,
        })),
    }
}

/// Reads every entry under a prefix, page by page.
pub async fn read_all(store: &dyn Store, prefix: &str) -> Result<Vec<KeyValue>, StoreError> {
    read_pages(store, Range::prefix(prefix)).await
}

/// Reads every key under a prefix.
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

/// Deletes the first keys under a prefix until at most `kept` are left. If keys
/// begin with their time, these are the oldest.
pub async fn forget_oldest(
    store: &dyn Store,
    prefix: &str,
    kept: usize,
) -> Result<(), ServiceError> {
    let all = keys_under(store, prefix).await?;
    for chunk in all[..all.len().saturating_sub(kept)].chunks(FORGOTTEN_AT_ONCE) {
        let transaction = chunk.iter().fold(Transaction::new(), Transaction::delete);
        settle(store, transaction).await?;
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

/// The decision of an update about the document it read.
pub enum Decision<T> {
    Write(T),
    /// Leave the document unchanged.
    Keep,
}

/// Reads a document, lets `decide` choose its new content, and writes that only
/// if the document has not changed since. Otherwise decides again on the current
/// document.
///
/// Returns the resulting document. `decide` may be called several times and must
/// have no side effects.
pub async fn update<T, F>(
    store: &dyn Store,
    key: &str,
    decide: F,
) -> Result<Option<T>, ServiceError>
where
    T: Serialize + DeserializeOwned,
    F: FnMut(Option<T>) -> Result<Decision<T>, ServiceError>,
{
    // Each attempt is a future of its own, and only one exists at a time.
    let decide = &Mutex::new(decide);
    compare_and_swap(store, |_| async move {
        let entry = store.get(key).await?;
        let current = entry.as_ref().map(decode::<T>).transpose()?;
        let decision = {
            let mut decide = decide.lock().unwrap_or_else(PoisonError::into_inner);
            decide(current)?
        };
        Ok(match decision {
            Decision::Keep => Swap::Done(entry.as_ref().map(decode::<T>).transpose()?),
            Decision::Write(next) => {
                let transaction = Transaction::new()
                    .when_unchanged(key, entry.as_ref())
                    .put(key, encode(&next));
                Swap::Write(transaction, Some(next))
            }
        })
    })
    .await
}
