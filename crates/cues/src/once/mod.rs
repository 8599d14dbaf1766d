//! Tasks that run once per fleet, however many hosts ask.
//!
//! Each task has three keys: its parts (definition and fragments), its state (the
//! attempts), and its claim, which is bound to the claimant's lease. They are
//! read in one step, and a claim is one transaction that compares all three with
//! the values read: of any number of callers one wins, and none starts on a
//! definition that has changed in the meantime.
//!
//! Rule: asking for the status of a task writes nothing.
//! Absent: running anything. The claimant does, and sends its log and outcome.

mod attempts;
mod definition;
mod permitted;
mod record;
mod sites;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{AppName, NodeName, Role};
use bunraku_store::{KeyValue, Range, SharedStore, Swap, Transaction, compare_and_swap, limits};
use bunraku_wire::api::once::{
    DefineOnce, OnceReport, OnceStatus, OnceSummary, ResetOnce, StatOnce,
};
use serde_json::{Map, Value};

use crate::permission::{CueCaller, Permissions};
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::find_nodes::check_node_query;
use bunraku_control::{Epoch, FindNodes, ServiceError, keys};
use definition::{Definition, Expected};
use permitted::OnceRole;
use record::{AuthoredDefinition, Claim, Parts, Record, State};

/// The size limit of a node's fragment, in bytes of JSON.
const FRAGMENT_LIMIT: usize = 64 * 1024;

/// The most tasks that one node may define. Operators have no limit.
const DEFINITIONS_PER_NODE: usize = 100;
/// The time after which a node that is over budget may try again.
const RETRY: Duration = Duration::from_secs(60);

/// The shortest and longest lease that a claimant may ask for.
pub const LEASES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

/// The handle on the service.
#[derive(Clone)]
pub struct Once {
    store: SharedStore,
    clock: Clock,
    find_nodes: Option<Arc<dyn FindNodes>>,
    epoch: Epoch,
    permissions: Permissions,
}

/// A record and the entries that it was read from.
struct RecordSnapshot {
    record: Record,
    parts: Option<KeyValue>,
    state: Option<KeyValue>,
    claim: Option<KeyValue>,
}

impl Once {
    pub fn new(store: SharedStore, clock: Clock) -> Self {
        Self {
            store,
            clock,
            find_nodes: None,
            epoch: Epoch::default(),
            permissions: Permissions::default(),
        }
    }

    /// Hands out tokens above those of earlier epochs, and lets definitions name their hosts
    /// by a query.
    #[must_use]
    pub fn on_server(mut self, epoch: Epoch, find_nodes: Arc<dyn FindNodes>) -> Self {
        self.epoch = epoch;
        self.permissions = Permissions::with_queries(Arc::clone(&find_nodes));
        self.find_nodes = Some(find_nodes);
        self
    }

    /// Returns the status of a task for this caller. Read-only.
    pub async fn status(
        &self,
        app: &AppName,
        asker: CueCaller<'_>,
        request: &StatOnce,
    ) -> Result<OnceStatus, ServiceError> {
        let mut read = self.read(app).await?;
        // Before the definition of the request counts: nobody permits itself.
        let role = self.role(&read.record.parts, asker).await?;
        if let (Some(document), OnceRole::Initialiser) = (&request.definition, role) {
            match self.defined(read.record.parts.definition.as_ref(), document, asker)? {
                Ok(defined) => read.record.parts.definition = Some(defined),
                Err(why) => {
                    return Ok(OnceStatus::NotReady {
                        missing: vec![why],
                        failed: None,
                    });
                }
            }
        }
        let queried = self.queried(&read.record).await?;
        Ok(read.record.status_for(asker, role, request.retry, &queried))
    }

    /// Stores a definition. The same one again changes nothing.
    pub async fn define(
        &self,
        app: &AppName,
        asker: CueCaller<'_>,
        request: &DefineOnce,
    ) -> Result<(), ServiceError> {
        self.check_initialiser(app, asker).await?;
        self.check_budget(app, asker).await?;
        self.update_parts(app, |parts| {
            match self.defined(parts.definition.as_ref(), &request.definition, asker)? {
                Ok(defined) => parts.definition = Some(defined),
                Err(why) => {
                    return Err(ServiceError::Forbidden {
                        message: format!("`{app}` needs {why}"),
                        hint: Some("ask an operator to replace it".to_owned()),
                    });
                }
            }
            Ok(())
        })
        .await
    }

    /// Refuses a node that has defined too many tasks, by what the store contains.
    async fn check_budget(&self, app: &AppName, asker: CueCaller<'_>) -> Result<(), ServiceError> {
        let known = document::read::<Parts>(&*self.store, &keys::once_parts(app)).await?;
        let is_known = known.is_some_and(|known| known.document.definition.is_some());
        if asker.role != Role::Node || is_known {
            return Ok(());
        }
        let mut defined = 0;
        for key in document::keys_under(&*self.store, keys::ONCE).await? {
            let Some(other) = keys::parse_once_key(&key).filter(|it| keys::once_parts(it) == key)
            else {
                continue;
            };
            let parts = document::read::<Parts>(&*self.store, &keys::once_parts(&other)).await?;
            let by = parts.and_then(|parts| Some(parts.document.definition?.by));
            defined += usize::from(by.as_ref() == Some(asker.name));
        }
        if defined < DEFINITIONS_PER_NODE {
            return Ok(());
        }
        Err(ServiceError::OverBudget {
            message: format!(
                "`{}` has already defined {DEFINITIONS_PER_NODE} once tasks",
                asker.name
            ),
            retry_after: RETRY,
        })
    }

    /// Returns the definition as it would be stored, or the reason why this
    /// caller may not write it.
    fn defined(
        &self,
        current: Option<&AuthoredDefinition>,
        document: &Map<String, Value>,
        asker: CueCaller<'_>,
    ) -> Result<Result<AuthoredDefinition, String>, ServiceError> {
        let parsed = Definition::parse(document.clone())
            .map_err(|error| ServiceError::invalid(error.to_string()))?;
        if matches!(parsed.expected, Expected::Query(_)) && self.find_nodes.is_none() {
            return Err(ServiceError::invalid(
                "this server does not answer queries: set `expected_hosts` to a number or a list",
            ));
        }
        self.permissions.check(&parsed.init_on)?;
        self.permissions.check(&parsed.contributors)?;
        if let Expected::Query(query) = &parsed.expected {
            // The nodes it finds are reported as missing, and nodes may not run queries.
            if asker.role == Role::Node {
                return Err(ServiceError::Forbidden {
                    message: "a node may not expect hosts by a query".to_owned(),
                    hint: Some("ask an operator to define it (`bunraku once define`)".to_owned()),
                });
            }
            check_node_query(query)?;
        }
        match current {
            Some(current) if current.document == parsed.document => Ok(Ok(current.clone())),
            Some(current) if asker.role == Role::Node && current.by != *asker.name => Ok(Err(
                format!("another name: `{}` has already defined it", current.by),
            )),
            _ => Ok(Ok(AuthoredDefinition {
                document: parsed.document,
                by: asker.name.clone(),
                role: asker.role,
                at: self.clock.now(),
            })),
        }
    }

    /// Stores one host's fragment. The same one again changes nothing.
    pub async fn contribute(
        &self,
        app: &AppName,
        host: &NodeName,
        fragment: &Map<String, Value>,
        asker: CueCaller<'_>,
    ) -> Result<(), ServiceError> {
        self.check_contributor(app, asker).await?;
        let size = document::encode(fragment).len();
        if size > FRAGMENT_LIMIT {
            return Err(ServiceError::TooLarge {
                what: format!("the fragment of `{host}`"),
                size: size as u64,
                limit: FRAGMENT_LIMIT as u64,
                hint: None,
            });
        }
        self.update_parts(app, |parts| {
            parts.fragments.insert(host.clone(), fragment.clone());
            Ok(())
        })
        .await
    }

    /// Withdraws a host's fragment.
    pub async fn withdraw(&self, app: &AppName, host: &NodeName) -> Result<(), ServiceError> {
        self.update_parts(app, |parts| {
            parts.fragments.remove(host);
            Ok(())
        })
        .await
    }

    async fn update_parts(
        &self,
        app: &AppName,
        change: impl Fn(&mut Parts) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        document::update(
            &*self.store,
            &keys::once_parts(app),
            |current: Option<Parts>| {
                let mut parts = current.clone().unwrap_or_default();
                change(&mut parts)?;
                if current.unwrap_or_default() == parts {
                    return Ok(Decision::Keep);
                }
                let size = document::encode(&parts).len();
                if size > limits::MAX_VALUE_BYTES {
                    return Err(ServiceError::TooLarge {
                        what: format!("the definition of `{app}` with all fragments"),
                        size: size as u64,
                        limit: limits::MAX_VALUE_BYTES as u64,
                        hint: Some("store large data elsewhere and refer to it".to_owned()),
                    });
                }
                Ok(Decision::Write(parts))
            },
        )
        .await?;
        Ok(())
    }

    /// Lets the task run again. The history keeps the author and the reason.
    pub async fn reset(
        &self,
        app: &AppName,
        request: &ResetOnce,
        by: &str,
    ) -> Result<(), ServiceError> {
        if request.reason.trim().is_empty() {
            return Err(ServiceError::invalid("a reset needs a reason"));
        }
        compare_and_swap(&*self.store, |_| async {
            let read = self.read_existing(app).await?;
            if read.record.claim.is_some() {
                return Err(ServiceError::conflict(
                    format!("`{app}` is running"),
                    "wait until it ends, or stop it where it runs",
                ));
            }
            let record = &read.record;
            let mut next =
                record
                    .state
                    .with_reset(by, &request.reason, self.clock.now(), record.last());
            let old = next.forget_old();
            let transaction = self
                .unchanged(app, &read)
                .put(keys::once_state(app), document::encode(&next));
            let transaction = old.into_iter().fold(transaction, |transaction, token| {
                transaction.delete(keys::once_log(app, token))
            });
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        tracing::info!(%app, by, reason = request.reason, "once task reset");
        Ok(())
    }

    /// Returns all tasks, by name.
    pub async fn list(&self, asker: CueCaller<'_>) -> Result<Vec<OnceSummary>, ServiceError> {
        let mut reads: BTreeMap<AppName, Vec<KeyValue>> = BTreeMap::new();
        for entry in document::read_all(&*self.store, keys::ONCE).await? {
            if let Some(app) = keys::parse_once_key(&entry.key) {
                reads.entry(app).or_default().push(entry);
            }
        }
        let mut summaries = Vec::with_capacity(reads.len());
        for (app, entries) in reads {
            let read = RecordSnapshot::of(&app, entries)?;
            summaries.push(self.summary(&app, &read.record, asker).await?);
        }
        Ok(summaries)
    }

    /// Returns one task, with its history and the end of its newest log.
    pub async fn show(
        &self,
        app: &AppName,
        asker: CueCaller<'_>,
    ) -> Result<OnceReport, ServiceError> {
        let record = self.read_existing(app).await?.record;
        let log = match &record.state.last {
            None => None,
            Some(attempt) => {
                document::read::<String>(&*self.store, &keys::once_log(app, attempt.token))
                    .await?
                    .map(|log| log.document)
            }
        };
        let summary = self.summary(app, &record, asker).await?;
        let mut history = record.state.history.clone();
        history.extend(
            record
                .last()
                .map(bunraku_wire::api::once::OnceEvent::Attempt),
        );
        let (definition, defined_by) = match record.parts.definition {
            None => (None, None),
            Some(defined) => (Some(defined.document), Some(defined.by.to_string())),
        };
        let parts = record
            .parts
            .fragments
            .into_iter()
            .map(|(host, fragment)| (host, Value::Object(fragment)))
            .collect();
        Ok(OnceReport {
            summary,
            definition,
            defined_by,
            permissions: record.parts.permissions,
            parts,
            history,
            log,
        })
    }

    async fn summary(
        &self,
        app: &AppName,
        record: &Record,
        asker: CueCaller<'_>,
    ) -> Result<OnceSummary, ServiceError> {
        let queried = self.queried(record).await?;
        Ok(OnceSummary {
            app: app.clone(),
            standing: record.status_for(asker, OnceRole::Initialiser, false, &queried),
            attempts: record.state.attempts,
            fragments: record.parts.fragments.len(),
        })
    }

    /// Returns the nodes that the definition's query finds; none without a query.
    async fn queried(&self, record: &Record) -> Result<Vec<NodeName>, ServiceError> {
        let Some(defined) = &record.parts.definition else {
            return Ok(Vec::new());
        };
        let expected = Definition::parse(defined.document.clone()).map(|parsed| parsed.expected);
        match (expected, &self.find_nodes) {
            (Ok(Expected::Query(query)), Some(find)) => find.nodes_matching(&query).await,
            _ => Ok(Vec::new()),
        }
    }

    async fn read_existing(&self, app: &AppName) -> Result<RecordSnapshot, ServiceError> {
        let read = self.read(app).await?;
        if read.parts.is_some() || read.state.is_some() {
            Ok(read)
        } else {
            Err(ServiceError::NotFound {
                what: format!("`{app}`"),
                hint: Some("list the once tasks with `bunraku once list`".to_owned()),
            })
        }
    }

    /// Reads all three keys at one revision.
    async fn read(&self, app: &AppName) -> Result<RecordSnapshot, ServiceError> {
        let page = self
            .store
            .range(Range::prefix(keys::once_prefix(app)))
            .await?;
        RecordSnapshot::of(app, page.items)
    }

    /// Starts a transaction that succeeds only if none of the three keys has changed.
    fn unchanged(&self, app: &AppName, read: &RecordSnapshot) -> Transaction {
        Transaction::new()
            .when_unchanged(&keys::once_parts(app), read.parts.as_ref())
            .when_unchanged(&keys::once_state(app), read.state.as_ref())
            .when_unchanged(&keys::once_claim(app), read.claim.as_ref())
    }
}

impl RecordSnapshot {
    fn of(app: &AppName, entries: Vec<KeyValue>) -> Result<Self, ServiceError> {
        let mut read = Self {
            record: Record::default(),
            parts: None,
            state: None,
            claim: None,
        };
        for entry in entries {
            if entry.key == keys::once_parts(app) {
                read.record.parts = document::decode::<Parts>(&entry)?;
                read.parts = Some(entry);
            } else if entry.key == keys::once_state(app) {
                read.record.state = document::decode::<State>(&entry)?;
                read.state = Some(entry);
            } else if entry.key == keys::once_claim(app) {
                read.record.claim = Some(document::decode::<Claim>(&entry)?);
                read.claim = Some(entry);
            }
        }
        Ok(read)
    }
}
