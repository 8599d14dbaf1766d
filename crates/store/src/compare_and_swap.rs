//! The one loop for "read, decide, write if nothing changed in the meantime", over any number of
//! keys.
//!
//! Conflicts are retried, with pauses and a limit. An unknown outcome is settled (see
//! [`settle`]): what happened is never reported as a failure, and nothing happens twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::limits::MAX_OPERATIONS;
use crate::settle::{Settled, Unsettled, try_settle};
use crate::{
    Compare, KeyValue, Range, Revision, Store, StoreError, Transaction, TransactionOutcome,
};

/// The number of attempts before the loop gives up.
const ATTEMPTS: u32 = 200;
/// The number of attempts after which the loop starts to pause.
const AT_ONCE: u32 = 3;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A decision about what was read.
pub enum Swap<T> {
    /// Write nothing: the result is known.
    Done(T),
    /// Commit the transaction, which compares everything that the decision depends on. Once it is
    /// committed, the result is `T`.
    Write(Transaction, T),
}

/// Reads and decides until a decision needs no write, or its write is committed.
///
/// `decide` is called again after each conflict. It gets the `reads_on_failure` of the refused
/// transaction, and an empty list on its first call. It must not have side effects that matter if
/// its transaction is refused.
///
/// If the outcome of a write stays unknown, `decide` is called on the current state. It sees its
/// own write there if that was committed and still matters. If it fails then, the error is
/// [`StoreError::OutcomeUnknown`], because the failure may be a consequence of its own write.
///
/// Fails with [`StoreError::Contended`] if other writers are faster every time.
pub async fn compare_and_swap<T, E, F>(
    store: &dyn Store,
    mut decide: impl FnMut(Vec<Option<KeyValue>>) -> F,
) -> Result<T, E>
where
    E: From<StoreError>,
    F: Future<Output = Result<Swap<T>, E>>,
{
    let (mut reads, mut doubt) = (Vec::new(), None);
    for attempt in 0..ATTEMPTS {
        let (transaction, result) = match (decide(std::mem::take(&mut reads)).await, doubt.take()) {
            (Ok(Swap::Done(result)), _) => return Ok(result),
            (Ok(Swap::Write(transaction, result)), still) => {
                doubt = still;
                (transaction, result)
            }
            (Err(_), Some(doubt)) => return Err(doubt_error(doubt)),
            (Err(error), None) => return Err(error),
        };
        let pause = pause(attempt, &transaction);
        match (try_settle(store, transaction).await, doubt.take()) {
            (Ok(Settled::Committed), _) => return Ok(result),
            (Ok(Settled::Refused(found)), still) => (reads, doubt) = (found, still),
            // The store works, so the current state is worth another look, however often.
            (Err(Unsettled::Hidden(new)), still) => doubt = Some(still.unwrap_or(new)),
            (Err(Unsettled::Unanswered(new)), None) => doubt = Some(new),
            (Err(_), Some(doubt)) => return Err(doubt_error(doubt)),
            (Err(unsettled), None) => return Err(StoreError::from(unsettled).into()),
        }
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
    Err(match doubt {
        Some(doubt) => doubt_error(doubt),
        None => StoreError::Contended { attempts: ATTEMPTS }.into(),
    })
}

fn doubt_error<E: From<StoreError>>(doubt: Box<dyn std::error::Error + Send + Sync>) -> E {
    StoreError::OutcomeUnknown(doubt).into()
}

/// Returns the pause after an attempt. Writers that collide have different pauses, because they
/// write different things; so nothing random is needed, and a simulation stays repeatable.
fn pause(attempt: u32, transaction: &Transaction) -> Option<Duration> {
    let doublings = attempt.checked_sub(AT_ONCE)?;
    let most = Duration::from_millis(1 << doublings.min(10)).min(LONGEST_PAUSE);
    let mut hasher = DefaultHasher::new();
    (attempt, transaction).hash(&mut hasher);
    let share = (hasher.finish() % 1000) as f64 / 1000.0;
    Some(most.mul_f64(0.5 + share / 2.0))
}

/// Reads several keys at one revision. Returns one entry per key.
pub async fn read_together<const N: usize>(
    store: &dyn Store,
    keys: [&str; N],
) -> Result<[Option<KeyValue>; N], StoreError> {
    let found = read_at_once(store, &keys).await?;
    found.try_into().map_err(|_| wrong_result_count())
}

/// Reads any number of keys with few requests. Returns one entry per key. Each entry is current,
/// but those of different requests may be of different revisions.
pub async fn read_each(
    store: &dyn Store,
    keys: &[String],
) -> Result<Vec<Option<KeyValue>>, StoreError> {
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(MAX_OPERATIONS) {
        found.extend(read_at_once(store, keys).await?);
    }
    Ok(found)
}

async fn read_at_once<K: AsRef<str>>(
    store: &dyn Store,
    keys: &[K],
) -> Result<Vec<Option<KeyValue>>, StoreError> {
    let Some(first) = keys.first() else {
        return Ok(Vec::new());
    };
    // These two compares never hold together, so the transaction only reads.
    let question = Transaction::new()
        .when(Compare::Absent(first.as_ref().to_owned()))
        .when(Compare::Exists(first.as_ref().to_owned()));
    let question = keys.iter().fold(question, |question, key| {
        question.read_on_failure(key.as_ref())
    });
    match store.commit(question).await {
        Ok(TransactionOutcome::Refused(found)) if found.len() == keys.len() => Ok(found),
        Ok(_) => Err(wrong_result_count()),
        // It would have written nothing.
        Err(StoreError::OutcomeUnknown(source)) => Err(StoreError::Unavailable(source)),
        Err(error) => Err(error),
    }
}

/// Returns the newest revision of the store.
///
/// The range is empty: etcd visits every key of a range, even those beyond its limit.
pub async fn newest_revision(store: &dyn Store) -> Result<Revision, StoreError> {
    let nothing = Range {
        limit: 1,
        keys_only: true,
        ..Range::prefix("no-such-key/")
    };
    Ok(store.range(nothing).await?.revision)
}

fn wrong_result_count() -> StoreError {
    StoreError::Invalid("the store did not answer for every key that was read".to_owned())
}
