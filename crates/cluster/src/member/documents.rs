//! The documents in the store on which the members agreed.

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_store::{Compare, KeyValue, Range, Store, StoreError, Transaction, TransactionOutcome};
use bunraku_wire::api::cluster::{
    ClusterEvent, ClusterSettings, DatastoreRecord, MemberRecord, RemovedMember, keys,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::records::StoredStep;
use super::{Shared, now, records};
use crate::datastore::{ClusterState, DatastoreOrder};
use crate::failover::{DatastorePlan, Programs};

/// Everything under `cluster/`, read at once.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) settings: Option<ClusterSettings>,
    pub(super) members: Vec<MemberRecord>,
    pub(super) orders: BTreeMap<NodeName, DatastoreOrder>,
    order_entries: BTreeMap<NodeName, KeyValue>,
    pub(super) programs: BTreeMap<NodeName, Programs>,
    pub(super) plan: DatastorePlan,
    pub(super) plan_entry: Option<KeyValue>,
    pub(super) datastores: Vec<DatastoreRecord>,
    pub(super) events: Vec<ClusterEvent>,
    pub(super) removed: Vec<RemovedMember>,
    /// The step that is under way.
    pub(super) step: Option<StoredStep>,
}

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data that JSON can hold")
}

/// Decodes a document. An unreadable one was written by a newer version or by
/// another program. It is left alone and logged.
fn decode<T: DeserializeOwned>(entry: &KeyValue) -> Option<T> {
    serde_json::from_slice(&entry.value)
        .inspect_err(
            |error| tracing::error!(key = entry.key, error = %error, "cannot read a document"),
        )
        .ok()
}

impl Documents {
    pub(super) async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut documents = Self::default();
        let mut range = Range::prefix(keys::ALL);
        loop {
            let page = store.range(range.clone()).await?;
            range.after = page.items.last().map(|entry| entry.key.clone());
            for entry in page.items {
                documents.note(entry);
            }
            if !page.more {
                return Ok(documents);
            }
        }
    }

    fn note(&mut self, entry: KeyValue) {
        match entry.key.as_str() {
            keys::SETTINGS => self.settings = decode(&entry),
            keys::PLAN => {
                self.plan = decode(&entry).unwrap_or_default();
                self.plan_entry = Some(entry);
            }
            keys::DATASTORES => self.datastores = decode(&entry).unwrap_or_default(),
            keys::EVENTS => self.events = decode(&entry).unwrap_or_default(),
            keys::STEP => {
                let value = entry.value.clone();
                self.step = decode(&entry).map(|entry| StoredStep { entry, value });
            }
            key if key.starts_with(keys::MEMBERS) => self.members.extend(decode(&entry)),
            key if key.starts_with(keys::REMOVED) => self.removed.extend(decode(&entry)),
            key if key.starts_with(keys::PROGRAMS) => {
                let name = NodeName::new(&key[keys::PROGRAMS.len()..]).ok();
                self.programs
                    .extend(name.and_then(|name| Some((name, decode(&entry)?))));
            }
            key if key.starts_with(keys::ORDERS) => {
                let Ok(name) = NodeName::new(&key[keys::ORDERS.len()..]) else {
                    return;
                };
                let order = decode(&entry);
                self.orders.extend(order.map(|order| (name.clone(), order)));
                self.order_entries.insert(name, entry);
            }
            _ => {}
        }
    }

    /// Returns the note that this server was removed, if it was.
    pub(super) fn removal_of(&self, name: &NodeName) -> Option<&RemovedMember> {
        self.removed.iter().find(|one| one.name == *name)
    }

    /// Returns true if the first datastore of this epoch has recorded itself. Until
    /// then, the documents are outdated and do not describe the current datastores.
    pub(super) fn are_of(&self, epoch: u64) -> bool {
        self.orders.values().any(|order| order.epoch >= epoch)
    }

    /// Changes a server's order, on condition that the order is still the one read here.
    pub(super) fn with_order(
        &self,
        server: &NodeName,
        order: Option<&DatastoreOrder>,
    ) -> Transaction {
        let key = keys::order(server);
        let transaction = Transaction::new().when_unchanged(&key, self.order_entries.get(server));
        match order {
            Some(order) => transaction.put(key, encode(order)),
            None => transaction.delete(key),
        }
    }

    /// The endpoints of datastores with a vote.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let voters = self.datastores.iter().filter(|one| !one.learner);
        voters.map(|one| one.client_url.clone()).collect()
    }
}

/// Writes this member's own documents: at the very first start of the first server,
/// after a recovery, and when its addresses changed.
pub(super) async fn introduce_itself(shared: &Shared, store: &dyn Store) -> Result<(), StoreError> {
    let documents = Documents::read(store).await?;
    if let Some(removed) = documents.removal_of(shared.name()) {
        shared.end_as_removed(removed);
        return Ok(());
    }
    if documents.settings.is_none()
        && let Some(datastores) = shared.me.datastores
    {
        let settings = ClusterSettings {
            cluster: shared.me.cluster.clone(),
            datastores,
        };
        put_if_absent(store, keys::SETTINGS, &settings).await?;
    }
    write_record(shared, store).await?;
    let local = shared.orders.borrow().clone();
    if let Some(order) = local.filter(|order| order.state == ClusterState::New) {
        write_first_order(shared, store, &documents, order).await?;
    }
    Ok(())
}

async fn put_if_absent(
    store: &dyn Store,
    key: &str,
    value: &impl Serialize,
) -> Result<(), StoreError> {
    let transaction = Transaction::new()
        .when(Compare::Absent(key.to_owned()))
        .put(key, encode(value));
    store.commit(transaction).await.map(drop)
}

/// Writes this member's record. The member owns its addresses; the rest belongs to the operators.
async fn write_record(shared: &Shared, store: &dyn Store) -> Result<(), StoreError> {
    let own = &shared.me.record;
    let key = keys::member(&own.name);
    loop {
        let entry = store.get(&key).await?;
        let known: Option<MemberRecord> = entry.as_ref().and_then(decode);
        let wanted = match &known {
            // It was removed at this very moment; the follower will see that.
            None if store.get(&keys::removed(&own.name)).await?.is_some() => return Ok(()),
            None => own.clone(),
            Some(known) => MemberRecord {
                eligible: known.eligible,
                draining: known.draining,
                joined: known.joined,
                ..own.clone()
            },
        };
        if known.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let transaction = Transaction::new()
            .when_unchanged(&key, entry.as_ref())
            .when(Compare::Absent(keys::removed(&own.name)))
            .put(key.clone(), encode(&wanted));
        if let TransactionOutcome::Committed(_) = store.commit(transaction).await? {
            return Ok(());
        }
    }
}

/// Writes the order of the first datastore of an epoch. Nobody else ordered it, so
/// it records itself here. Documents of an earlier epoch are then outdated.
async fn write_first_order(
    shared: &Shared,
    store: &dyn Store,
    documents: &Documents,
    order: DatastoreOrder,
) -> Result<(), StoreError> {
    let newest = documents.orders.values().map(|order| order.epoch).max();
    if newest.is_some_and(|newest| newest >= order.epoch) {
        return Ok(());
    }
    let own = &shared.me.record;
    let listed = shared.admin().list_at(&own.client_url).await;
    let listed = listed.map_err(|error| StoreError::Unavailable(Box::new(error)))?;
    let id = listed
        .iter()
        .find(|member| member.peer_url == own.peer_url)
        .map(|member| member.id);
    let order = DatastoreOrder { id, ..order };
    let mut transaction = Transaction::new().delete(keys::PLAN);
    for name in documents.orders.keys().filter(|name| **name != own.name) {
        transaction = transaction.delete(keys::order(name));
    }
    let datastore = DatastoreRecord {
        id: id.unwrap_or_default(),
        name: Some(own.name.clone()),
        client_url: own.client_url.clone(),
        peer_url: own.peer_url.clone(),
        learner: false,
        healthy: true,
    };
    transaction = transaction
        .put(keys::order(&own.name), encode(&order))
        .put(keys::DATASTORES, encode(&[datastore]));
    let record = records::first_datastore(&own.name, now(), order.epoch);
    store
        .commit(records::with_record(transaction, &record))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use bunraku_store::Revision;

    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).expect("a name")
    }

    fn with_order_of(epoch: u64) -> Documents {
        let server = name("s1");
        let order = DatastoreOrder::first("test", epoch, &server, "https://s1:1", "a".to_owned());
        let mut documents = Documents::default();
        documents.note(KeyValue {
            key: keys::order(&server),
            value: encode(&order).into(),
            created: Revision(4),
            modified: Revision(7),
            version: 2,
            lease: None,
        });
        documents
    }

    #[test]
    fn documents_of_an_earlier_epoch_are_ignored() {
        assert!(!Documents::default().are_of(1), "nobody has said anything");
        assert!(with_order_of(1).are_of(1));
        assert!(
            !with_order_of(1).are_of(2),
            "the data was recovered, and its server has not said so yet"
        );
    }

    #[test]
    fn an_order_is_changed_only_if_it_is_the_one_that_was_read() {
        let documents = with_order_of(1);
        let retired = documents.with_order(&name("s1"), None);
        let read = Compare::Modified(keys::order(&name("s1")), Revision(7));
        assert_eq!(retired.compares, [read]);
        let fresh = documents.with_order(&name("s2"), None);
        let absent = Compare::Absent(keys::order(&name("s2")));
        assert_eq!(fresh.compares, [absent]);
    }
}
