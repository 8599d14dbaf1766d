//! Reports which etcd runs here and which is installed, for the elected server.

use std::sync::Arc;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::{Store, Transaction};
use bunraku_wire::api::cluster::keys;
use tokio::time::MissedTickBehavior;

use super::Shared;
use super::documents::encode;
use crate::datastore::DatastoreState;
use crate::failover::Programs;

pub(super) async fn run(shared: Arc<Shared>, store: EtcdStore) {
    let mut state = shared.state.clone();
    let mut tick = tokio::time::interval(shared.options.check_interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut text = None;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            changed = state.changed() => if changed.is_err() { return },
        }
        let running = match &*state.borrow_and_update() {
            DatastoreState::Running { program, .. } => program.clone(),
            _ => None,
        };
        let installed = shared.inspector.read().await;
        let programs = Programs { running, installed };
        if text.as_ref() == Some(&programs) {
            continue;
        }
        let put = Transaction::new().put(keys::program(shared.name()), encode(&programs));
        match store.commit(put).await {
            Ok(_) => text = Some(programs),
            Err(error) => {
                tracing::debug!(error = %error, "cannot report the version of etcd yet; retrying")
            }
        }
    }
}
