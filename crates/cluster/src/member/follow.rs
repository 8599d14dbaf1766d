//! Applies the store's documents to this server, and remembers where the others are.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::{Follow, SharedStore};
use bunraku_wire::api::cluster::keys;

use super::documents::{self, Documents};
use super::{Datastores, Shared, locked};
use crate::datastore::DatastoreOrder;

const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Arc<Shared>, store: EtcdStore) {
    let mut said = false;
    while let Err(error) = documents::introduce_itself(&shared, &store).await {
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(error = %error, "cannot register this member; retrying");
        }
        tokio::time::sleep(PAUSE).await;
    }
    let followed: SharedStore = Arc::new(store.clone());
    let mut changes = Follow::new(followed, keys::ALL);
    loop {
        let heard = match changes.next().await {
            Ok(_) => Documents::read(&store).await,
            Err(error) => Err(error),
        };
        match heard {
            Ok(documents) => settle(&shared, &store, documents).await,
            Err(error) => {
                tracing::warn!(error = %error, "cannot read the shared state of the members");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Applies the documents, and every later version of them, until nothing is left to do.
async fn settle(shared: &Shared, store: &EtcdStore, mut documents: Documents) {
    while !apply(shared, store, &documents).await {
        tokio::time::sleep(PAUSE).await;
        if let Ok(fresh) = Documents::read(store).await {
            documents = fresh;
        }
    }
}

/// Returns false if the documents have to be read again.
async fn apply(shared: &Shared, store: &EtcdStore, documents: &Documents) -> bool {
    if let Some(removed) = documents.removal_of(shared.name()) {
        shared.end_as_removed(removed);
        return true;
    }
    remember(shared, store, documents).await;
    shared.datastores.send_replace(Datastores::of(documents));
    let ordered = documents.orders.get(shared.name());
    let current = shared.orders.borrow().clone();
    let epoch = *shared.epoch.borrow();
    match (ordered, current) {
        (Some(order), _) if order.epoch < epoch => {}
        (Some(order), Some(current)) if order.generation == current.generation => {
            if order.restart > current.restart {
                take_up(shared, Some(order));
            }
        }
        (Some(order), _) => {
            if may_start(shared, documents, order).await {
                take_up(shared, Some(order));
            }
        }
        (None, Some(_)) if has_a_vote(shared, documents).await => {
            tracing::warn!("this server's datastore is a voter without an order; keeping its data");
            return false;
        }
        (None, Some(_)) => take_up(shared, None),
        (None, None) => {}
    }
    true
}

/// Returns true if etcd's list has this server's datastore, with a vote. If nobody
/// can be asked, the answer is true: data is set aside only when it is certain that
/// nobody counts on it.
async fn has_a_vote(shared: &Shared, documents: &Documents) -> bool {
    let mut endpoints = documents.endpoints();
    if endpoints.is_empty() {
        endpoints = shared.endpoints();
    }
    let own = &shared.me.record.peer_url;
    match shared.admin().list(&endpoints).await {
        Ok(listed) => listed.iter().any(|it| it.peer_url == *own && !it.learner),
        Err(_) => true,
    }
}

/// Returns false for a datastore that ran before and whose data is missing. It has
/// lost its memory and would break its promises to the others. It stays down and is
/// replaced.
async fn may_start(shared: &Shared, documents: &Documents, order: &DatastoreOrder) -> bool {
    if crate::datastore::has_data(&shared.directory, order) {
        return true;
    }
    let listed = shared.admin().list(&documents.endpoints()).await;
    let ran_before = |id: u64| {
        let listed = listed.as_deref().unwrap_or_default();
        listed
            .iter()
            .any(|member| member.id == id && !member.name.is_empty())
    };
    let forgot = order.id.is_some_and(ran_before);
    if forgot {
        tracing::error!("the data of this server's datastore is missing; not starting it");
    }
    !forgot
}

fn take_up(shared: &Shared, order: Option<&DatastoreOrder>) {
    // Disk first: after a crash, this server must not run what it was ordered to end.
    if let Err(error) = shared.directory.write_order(order) {
        tracing::error!(error = %error, "cannot store an order; not executing it");
        return;
    }
    match order {
        Some(order) => tracing::info!(generation = order.generation, "ordered to run a datastore"),
        None => tracing::info!("ordered to remove the datastore"),
    }
    shared.orders.send_replace(order.cloned());
}

async fn remember(shared: &Shared, store: &EtcdStore, documents: &Documents) {
    let before = shared.endpoints();
    let fresh = {
        let mut known = locked(&shared.known);
        let old = known.clone();
        if !documents.members.is_empty() {
            known.members.clone_from(&documents.members);
        }
        let endpoints = documents.endpoints();
        if !endpoints.is_empty() {
            known.endpoints = endpoints;
        }
        (*known != old).then(|| known.clone())
    };
    let Some(known) = fresh else { return };
    if let Err(error) = shared.directory.write_known_peers(&known) {
        tracing::error!(error = %error, "cannot store the addresses of the other members");
    }
    if shared.endpoints() != before {
        tracing::info!(endpoints = ?shared.endpoints(), "the datastores changed");
        if let Err(error) = store.reconfigure(&shared.store_options()).await {
            tracing::error!(error = %error, "the store keeps using the previous datastores");
        }
    }
}
