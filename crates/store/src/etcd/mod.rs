//! The store on an etcd cluster, 3.4 or later.
//!
//! etcd's client does not retry automatically. This module repeats reads at the next member. It
//! repeats a write only if it certainly was not done, or if a second copy of it could not be
//! committed (see `transaction::guards_itself`). Everything else ends as
//! [`StoreError::OutcomeUnknown`].
//!
//! Without a majority, writes fail early; one member serves reads to callers that allow it
//! ([`crate::stale`]).
//!
//! Absent: user names and passwords (certificates identify us), starting members, and changing the
//! membership.

mod failure;
mod inner;
mod keys;
mod majority;
mod members;
mod options;
mod plain_http;
mod probe;
mod quota;
mod space;
mod transaction;
mod v2;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    CompactionOptions, GetOptions, GetResponse, LeaseTimeToLiveOptions, TxnOpResponse, TxnResponse,
};

pub use options::{EtcdIdentity, EtcdOptions, EtcdTls};
pub use v2::{EtcdV2, EtcdV2Changes, EtcdV2Entry, EtcdV2Error};

use crate::{
    KeyValue, LeaseId, LeaseStatus, NoMajority, Operation, Range, RangePage, Revision, Store,
    StoreError, StoreSpace, Transaction, TransactionOutcome, WatchStart, WatchStream, limits,
};
use failure::{Failure, Refusal};
use inner::Inner;
use keys::{Root, number, prefix_end, revision};
use majority::Majority;
use members::{Members, Repeat};
use space::ObservedSpace;

/// The maximum number of keys with values in one page.
const PAGE: usize = 1000;
/// The maximum number of keys without values in one page.
const KEYS_PAGE: usize = 10_000;
/// The largest possible refusal: all values that one transaction may request, and their keys.
const LARGEST_REFUSAL: usize = limits::MAX_OPERATIONS * (limits::MAX_VALUE_BYTES + 4096);

/// A store on etcd. Clones share the connections.
#[derive(Clone)]
pub struct EtcdStore {
    inner: Arc<Inner>,
}

impl EtcdStore {
    /// Connects, and checks that a member answers.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StoreError> {
        let store = Self::without_connecting(&options).await?;
        match store.inner.newest_revision().await {
            Ok(_) => Ok(store),
            Err(StoreError::Unavailable(source)) => {
                // There was no majority to lose yet, so the members' own errors tell more.
                let source = match source.downcast::<NoMajority>() {
                    Ok(none) => none.source,
                    Err(source) => source,
                };
                Err(StoreError::Unavailable(
                    probe::explain(&options).await.unwrap_or(source),
                ))
            }
            Err(other) => Err(other),
        }
    }

    /// Like [`EtcdStore::connect`], but one member is enough, even without a majority. Then this
    /// store starts in the state of a lost majority: it reads where that is allowed, and writes
    /// once there is a majority.
    pub async fn connect_even_to_one(options: EtcdOptions) -> Result<Self, StoreError> {
        let store = Self::without_connecting(&options).await?;
        match store.inner.newest_revision().await {
            Err(StoreError::Unavailable(source)) => {
                if store.inner.any_answers().await {
                    Ok(store)
                } else {
                    Err(StoreError::Unavailable(source))
                }
            }
            answered => answered.map(|_| store),
        }
    }

    async fn without_connecting(options: &EtcdOptions) -> Result<Self, StoreError> {
        Ok(Self {
            inner: Arc::new(Inner {
                members: Members::new(options).await?,
                majority: Majority::default(),
                space: ObservedSpace::default(),
                root: Root::new(&options.root)?,
            }),
        })
    }

    /// Switches to other members, or to another certificate. Requests and watches in progress end
    /// where they are, and watches resume here. The root and the times do not change. On an error
    /// nothing changes.
    pub async fn reconfigure(&self, options: &EtcdOptions) -> Result<(), StoreError> {
        self.inner.members.replace(options).await
    }

    async fn send(&self, txn: &etcd_client::Txn, repeat: Repeat) -> Result<TxnResponse, Failure> {
        self.inner
            .call(repeat, |_, member| {
                let txn = txn.clone();
                // The values read on failure arrive in one answer, which cannot be paged.
                let mut keys = member.keys.max_decoding_message_size(LARGEST_REFUSAL);
                async move { keys.txn(txn).await }
            })
            .await
    }

    /// Sends copies until one is answered. A refused copy proves nothing: an earlier copy may be
    /// the reason.
    async fn send_guarded(&self, txn: &etcd_client::Txn) -> Result<TxnResponse, Failure> {
        match self.send(txn, Repeat::OnlyIfNotDone).await {
            Err(Failure::Unknown(source)) => match self.send(txn, Repeat::Always).await {
                Ok(response) if response.succeeded() => Ok(response),
                _ => Err(Failure::Unknown(source)),
            },
            answered => answered,
        }
    }

    fn outcome(&self, response: &TxnResponse) -> TransactionOutcome {
        let term = response.header().map_or(0, |header| header.raft_term());
        self.inner.members.note_term(term);
        if response.succeeded() {
            let at = response.header().map_or(0, |header| header.revision());
            return TransactionOutcome::Committed(revision(at));
        }
        let read = |answer: TxnOpResponse| match answer {
            TxnOpResponse::Get(get) => get
                .kvs()
                .first()
                .and_then(|kv| self.inner.root.key_value(kv)),
            _ => None,
        };
        TransactionOutcome::Refused(response.op_responses().into_iter().map(read).collect())
    }
}

/// Returns the number that etcd limits: the length of the longest of the three lists.
fn most_entries(transaction: &Transaction) -> usize {
    let operations = transaction.operations.len();
    operations
        .max(transaction.compares.len())
        .max(transaction.reads_on_failure.len())
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let key = self.inner.root.key(key)?;
        let response = self
            .inner
            .read(key, GetOptions::new())
            .await
            .map_err(|failure| self.inner.unavailable(failure))?;
        Ok(response
            .kvs()
            .first()
            .and_then(|kv| self.inner.root.key_value(kv)))
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        let prefix = self.inner.root.prefix(&range.prefix)?;
        let end = prefix_end(&prefix);
        let from = match &range.after {
            None => prefix,
            Some(after) => {
                let mut next = self.inner.root.key(after)?;
                next.push(0);
                next.max(prefix)
            }
        };
        let most = if range.keys_only { KEYS_PAGE } else { PAGE };
        let mut limit = match range.limit {
            0 => most,
            wanted => wanted.min(most),
        };
        loop {
            let mut options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            if range.keys_only {
                options = options.with_keys_only();
            }
            match self.inner.read(from.clone(), options).await {
                Ok(response) => return Ok(self.page(&response)),
                // The number of keys per page is a guess; their sizes decide.
                Err(Failure::Refused(Refusal::AnswerTooLarge)) if limit > 1 => {
                    limit = (limit / 4).max(1);
                }
                Err(failure) => return Err(self.inner.unavailable(failure)),
            }
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        limits::check_transaction(&transaction)?;
        let txn = transaction::build(&transaction, &self.inner.root)?;
        let answer = if transaction.operations.is_empty() {
            // The transaction writes nothing, so repeating it is safe.
            self.send(&txn, Repeat::Always).await
        } else if transaction::guards_itself(&transaction) {
            self.send_guarded(&txn).await
        } else {
            self.send(&txn, Repeat::OnlyIfNotDone).await
        };
        match answer {
            Ok(response) => Ok(self.outcome(&response)),
            Err(Failure::Refused(Refusal::NoSpace)) => {
                self.outcome_without_space(&transaction).await
            }
            Err(failure) => Err(self.commit_error(failure, &transaction)),
        }
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        watch::watch(Arc::clone(&self.inner), prefix, start).await
    }

    fn space(&self) -> Option<StoreSpace> {
        self.inner.space.last()
    }

    async fn observe_space(&self) -> Result<Option<StoreSpace>, StoreError> {
        self.inner.observe_space().await.map(Some)
    }

    async fn reclaim_space(&self) -> Result<(), StoreError> {
        self.inner.reclaim_space().await
    }

    fn without_majority_for(&self) -> Option<Duration> {
        self.inner.majority.lost_for()
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        if ttl.is_zero() {
            return Err(StoreError::Invalid(
                "a lease needs a duration above zero".to_owned(),
            ));
        }
        // etcd counts whole seconds, and may grant more time than requested.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds.max(1)).unwrap_or(i64::MAX);
        // A grant whose answer was lost ends automatically, with nothing bound to it.
        let granted = self
            .inner
            .call(Repeat::Always, |_, mut member| async move {
                member.leases.grant(seconds, None).await
            })
            .await
            .map_err(|failure| match failure {
                Failure::Refused(Refusal::NoSpace) => self.no_space(),
                Failure::Refused(Refusal::Other(source)) => {
                    StoreError::Invalid(format!("a lease of {seconds} s: {source}"))
                }
                other => self.inner.unavailable(other),
            })?;
        Ok(LeaseId(granted.id()))
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.inner
            .call(Repeat::Always, |_, mut member| async move {
                member.leases.keep_alive(lease.0).await.map(drop)
            })
            .await
            .map_err(|failure| self.inner.about_lease(lease, failure))
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let revoke = |repeat| {
            self.inner.call(repeat, move |_, mut member| async move {
                member.leases.revoke(lease.0).await.map(drop)
            })
        };
        match revoke(Repeat::OnlyIfNotDone).await {
            Err(Failure::Unknown(_)) => match revoke(Repeat::Always).await {
                // The first attempt succeeded.
                Err(Failure::Refused(Refusal::LeaseNotFound)) => Ok(()),
                answered => answered.map_err(|failure| self.inner.about_lease(lease, failure)),
            },
            answered => answered.map_err(|failure| self.inner.about_lease(lease, failure)),
        }
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        let answer = self
            .inner
            .call(Repeat::Always, |_, mut member| async move {
                let options = LeaseTimeToLiveOptions::new().with_keys();
                member.leases.time_to_live(lease.0, Some(options)).await
            })
            .await;
        let response = match answer {
            Ok(response) => response,
            Err(Failure::Refused(Refusal::LeaseNotFound)) => return Ok(None),
            Err(failure) => return Err(self.inner.unavailable(failure)),
        };
        if response.ttl() < 0 {
            return Ok(None);
        }
        let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or_default());
        let mut keys: Vec<String> = response
            .keys()
            .iter()
            .filter_map(|key| self.inner.root.strip(key))
            .collect();
        keys.sort_unstable();
        Ok(Some(LeaseStatus {
            granted: seconds(response.granted_ttl()),
            remaining: seconds(response.ttl()),
            keys,
        }))
    }

    async fn compact(&self, at: Revision) -> Result<(), StoreError> {
        let answer = self
            .inner
            .call(Repeat::Always, |_, mut member| async move {
                // It returns when this member has dropped the history. Others follow in their own
                // time (`reclaim_space` waits for them).
                let options = CompactionOptions::new().with_physical();
                member.keys.compact(number(at), Some(options)).await
            })
            .await;
        match answer {
            // Already compacted, by us or by someone else.
            Ok(_) | Err(Failure::Refused(Refusal::Compacted)) => Ok(()),
            Err(Failure::Refused(Refusal::FutureRevision)) => Err(StoreError::Invalid(format!(
                "cannot compact at revision {at}, which is in the future"
            ))),
            Err(failure) => Err(self.inner.unavailable(failure)),
        }
    }
}

impl EtcdStore {
    fn page(&self, response: &GetResponse) -> RangePage {
        RangePage {
            items: response
                .kvs()
                .iter()
                .filter_map(|kv| self.inner.root.key_value(kv))
                .collect(),
            more: response.more(),
            revision: revision(response.header().map_or(0, |header| header.revision())),
        }
    }

    fn no_space(&self) -> StoreError {
        self.inner.space.note_alarm();
        StoreError::Full(self.inner.space.describe())
    }

    /// Finds out whether a transaction was committed for which etcd reported that there is no
    /// space. A member refuses before it passes the transaction on, or does it and then reports
    /// that it exceeded the quota.
    async fn outcome_without_space(
        &self,
        transaction: &Transaction,
    ) -> Result<TransactionOutcome, StoreError> {
        let full = self.no_space();
        let (mut done, mut missing) = (Vec::new(), 0_usize);
        for operation in &transaction.operations {
            let Operation::Put { key, value, lease } = operation else {
                continue;
            };
            match self.get(key).await {
                Ok(Some(found)) if found.value == *value && found.lease == *lease => {
                    done.push(found.modified);
                }
                Ok(_) => missing += 1,
                Err(_) => return Err(StoreError::OutcomeUnknown(Box::new(full))),
            }
        }
        // One transaction leaves one revision. Keys that had these values before do not show it.
        done.dedup();
        match (done.as_slice(), missing) {
            ([at], 0) => Ok(TransactionOutcome::Committed(*at)),
            ([], _) => Err(full),
            _ if missing > 0 => Err(full),
            _ => Err(StoreError::OutcomeUnknown(Box::new(full))),
        }
    }

    fn commit_error(&self, failure: Failure, transaction: &Transaction) -> StoreError {
        match failure {
            Failure::Unknown(source) => StoreError::OutcomeUnknown(source),
            Failure::NotDone(source) => {
                StoreError::Unavailable(self.inner.without_majority(source))
            }
            Failure::Refused(Refusal::LeaseNotFound) => {
                match transaction::first_lease(transaction) {
                    Some(lease) => StoreError::LeaseNotFound(lease),
                    None => Refusal::LeaseNotFound.into_error(),
                }
            }
            // The server's limit is below its default. It does not report the limit, only that this
            // request exceeds it.
            Failure::Refused(Refusal::RequestTooLarge) => StoreError::TooLarge {
                what: "a transaction's size in bytes",
                size: limits::transaction_bytes(transaction),
                limit: limits::transaction_bytes(transaction) - 1,
            },
            Failure::Refused(Refusal::TooManyOperations) => StoreError::TooLarge {
                what: "the number of operations",
                size: most_entries(transaction),
                limit: most_entries(transaction) - 1,
            },
            Failure::Refused(refusal) => refusal.into_error(),
        }
    }
}
