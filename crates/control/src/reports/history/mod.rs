//! The history of a fleet's reports: which backend holds it, and how servers agree on that.
//!
//! One key in the state store names the backend. Every transaction that stores events compares that
//! key, so no server writes to the former backend once it changed. While reports are moved from one
//! backend to another, both are read: first the former one, because a report is removed there only
//! after it was copied.

mod in_store;

use std::sync::{Arc, PoisonError, RwLock};

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::blobs::SharedBlobs;
use bunraku_store::history::{HistoryError, HistoryRecord, RecordId, SharedHistory};
use bunraku_store::{Follow, KeyValue, Range, SharedStore, Swap, Transaction, compare_and_swap};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(super) use in_store::StoreHistory;

use crate::clock::Clock;
use crate::{ServiceError, document, keys};

/// A place where history can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryPlace {
    /// In the state store, for small fleets.
    Store,
    /// In the data directory of the only server.
    Embedded,
    Postgresql,
}

impl HistoryPlace {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Embedded => "embedded",
            Self::Postgresql => "postgresql",
        }
    }
}

/// The backends that a server is configured for, beside its state store.
#[derive(Clone, Default)]
pub struct HistoryBackends {
    /// The history in the data directory. Only a server that has its store to itself has one.
    pub embedded: Option<SharedHistory>,
    pub postgresql: Option<SharedHistory>,
    /// `true` if a new fleet begins with PostgreSQL.
    pub begin_with_postgresql: bool,
}

impl std::fmt::Debug for HistoryBackends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryBackends")
            .field("embedded", &self.embedded.is_some())
            .field("postgresql", &self.postgresql.is_some())
            .finish()
    }
}

impl HistoryBackends {
    /// The place that needs no configuration.
    pub fn default_place(&self) -> HistoryPlace {
        match self.embedded {
            Some(_) => HistoryPlace::Embedded,
            None => HistoryPlace::Store,
        }
    }
}

/// The place of history, as all servers agree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredHistoryPlace {
    pub active: HistoryPlace,
    /// The former place, while reports are moved from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<HistoryPlace>,
    pub since: Timestamp,
    /// The number of reports moved so far.
    #[serde(default)]
    pub moved: u64,
}

/// The places as known here, with the entry that a transaction compares.
#[derive(Clone)]
pub(super) struct KnownHistory {
    pub(super) stored: Option<StoredHistoryPlace>,
    entry: Option<KeyValue>,
    pub(super) active: Result<SharedHistory, HistoryPlace>,
    pub(super) from: Option<Result<SharedHistory, HistoryPlace>>,
}

impl KnownHistory {
    /// Returns the backend to append to.
    pub(super) fn active(&self) -> Result<&SharedHistory, ServiceError> {
        self.active.as_ref().map_err(|place| not_configured(*place))
    }

    /// Returns whether events are stored with their head.
    pub(super) fn is_in_store(&self) -> bool {
        self.active
            .as_ref()
            .is_ok_and(|it| it.kind() == HistoryPlace::Store.as_str())
    }

    /// Returns the backends to read, in this order.
    pub(super) fn sources(&self) -> Result<Vec<&SharedHistory>, ServiceError> {
        let mut sources = Vec::new();
        if let Some(from) = &self.from {
            sources.push(from.as_ref().map_err(|place| not_configured(*place))?);
        }
        sources.push(self.active()?);
        Ok(sources)
    }

    /// Adds the condition that no server changed the place meanwhile.
    pub(super) fn when_unchanged(&self, transaction: Transaction) -> Transaction {
        transaction.when_unchanged(keys::HISTORY_PLACE, self.entry.as_ref())
    }
}

fn not_configured(place: HistoryPlace) -> ServiceError {
    HistoryError::NotConfigured(place.as_str().to_owned()).into()
}

/// All backends that this server can reach. This is a handle.
#[derive(Clone)]
pub(super) struct Histories {
    store: SharedStore,
    pub(super) in_store: StoreHistory,
    shared_in_store: SharedHistory,
    pub(super) backends: HistoryBackends,
    known: Arc<RwLock<Option<KnownHistory>>>,
    /// Notified when the places were read again.
    pub(super) changed: Arc<Notify>,
}

impl Histories {
    pub(super) fn new(store: SharedStore, blobs: SharedBlobs, backends: HistoryBackends) -> Self {
        let in_store = StoreHistory::new(store.clone(), blobs);
        Self {
            store,
            shared_in_store: Arc::new(in_store.clone()),
            in_store,
            backends,
            known: Arc::default(),
            changed: Arc::default(),
        }
    }

    pub(super) fn at(&self, place: HistoryPlace) -> Result<SharedHistory, HistoryPlace> {
        match place {
            HistoryPlace::Store => Some(self.shared_in_store.clone()),
            HistoryPlace::Embedded => self.backends.embedded.clone(),
            HistoryPlace::Postgresql => self.backends.postgresql.clone(),
        }
        .ok_or(place)
    }

    /// Returns the places as last read.
    pub(super) async fn current(&self) -> Result<KnownHistory, ServiceError> {
        let known = self
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match known {
            Some(known) => Ok(known),
            None => self.refresh().await,
        }
    }

    /// Reads the places again.
    pub(super) async fn refresh(&self) -> Result<KnownHistory, ServiceError> {
        let entry = self.store.get(keys::HISTORY_PLACE).await?;
        let stored = entry.as_ref().map(document::decode).transpose()?;
        let stored: Option<StoredHistoryPlace> = stored;
        let place = stored.as_ref().map_or(HistoryPlace::Store, |it| it.active);
        let known = KnownHistory {
            active: self.at(place),
            from: stored.as_ref().and_then(|it| it.from).map(|it| self.at(it)),
            stored,
            entry,
        };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
        self.changed.notify_waiters();
        Ok(known)
    }

    /// Chooses the place of a new fleet, and of one that has no place yet. A server that has its
    /// store to itself moves its reports out of the store; all others do so when asked.
    pub(super) async fn choose(&self, clock: &Clock) -> Result<(), ServiceError> {
        let backends = &self.backends;
        compare_and_swap(&*self.store, |_| async move {
            let entry = self.store.get(keys::HISTORY_PLACE).await?;
            if entry.is_some() {
                return Ok::<_, ServiceError>(Swap::Done(()));
            }
            let range = Range {
                limit: 1,
                ..Range::prefix(keys::REPORT_TIMES)
            };
            let has_reports = !self.store.range(range).await?.items.is_empty();
            let is_alone = backends.embedded.is_some();
            let preferred = if backends.begin_with_postgresql {
                HistoryPlace::Postgresql
            } else {
                backends.default_place()
            };
            let (active, from) = match (has_reports, is_alone) {
                (true, false) => (HistoryPlace::Store, None),
                (true, true) => (preferred, Some(HistoryPlace::Store)),
                (false, _) => (preferred, None),
            };
            let place = StoredHistoryPlace {
                active,
                from: from.filter(|from| *from != active),
                since: clock.now(),
                moved: 0,
            };
            let transaction = Transaction::new()
                .when_unchanged(keys::HISTORY_PLACE, None)
                .put(keys::HISTORY_PLACE, document::encode(&place));
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        self.refresh().await.map(drop)
    }

    /// Follows the place until cancelled.
    pub(super) async fn follow(&self, until: &CancellationToken) {
        let mut follow = Follow::new(self.store.clone(), keys::HISTORY_PLACE);
        loop {
            let followed = tokio::select! {
                () = until.cancelled() => return,
                followed = follow.next() => followed.map_err(ServiceError::from),
            };
            let refreshed = match followed {
                Ok(_) => self.refresh().await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = refreshed {
                tracing::debug!(error = %error, "cannot read the place of history; retrying");
                tokio::time::sleep(super::RETRY).await;
            }
        }
    }

    /// Returns a report that the state store no longer has.
    pub(super) async fn record(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<HistoryRecord>, ServiceError> {
        let id = RecordId::new(node.as_str(), run.to_string());
        for source in self.current().await?.sources()? {
            // The state store has nothing else of it.
            if source.kind() == HistoryPlace::Store.as_str() {
                continue;
            }
            if let Some(record) = source.record(&id).await? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}
