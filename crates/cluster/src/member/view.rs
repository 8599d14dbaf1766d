//! Keeps a view of this server's own data, from when its datastore stops answering
//! until there is a majority.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::Store;
use bunraku_store::etcd::EtcdStore;

use super::{MAJORITY, Shared, locked};
use crate::datastore::{self, View};
use crate::transport::DataProgress;

const LOOK: Duration = Duration::from_secs(1);

/// The time limit for the datastore on this machine to report its progress.
const OWN: Duration = Duration::from_secs(2);

/// Opens a view, if this server keeps data.
pub(super) async fn open(shared: &Shared) -> Option<View> {
    let order = shared.orders.borrow().clone()?;
    if !datastore::has_data(&shared.directory, &order) {
        return None;
    }
    let admin = shared.admin();
    match View::open(&shared.program, &shared.directory, &order, &admin).await {
        Ok(view) => {
            tracing::warn!(
                at = view.url,
                "no datastore answers; reading a copy of this server's data"
            );
            *locked(&shared.view) = Some(view.url.clone());
            Some(view)
        }
        Err(error) => {
            tracing::warn!(why = %bunraku_model::error_chain(&error), "cannot read this server's data; retrying");
            None
        }
    }
}

/// Keeps a view open while it is needed, and no longer.
pub(super) async fn keep_open(shared: Arc<Shared>, store: EtcdStore, mut view: Option<View>) {
    loop {
        tokio::time::sleep(LOOK).await;
        match (view.take(), store.without_majority_for()) {
            (Some(open), None) => {
                *locked(&shared.view) = None;
                reconfigure_store(&shared, &store).await;
                open.close().await;
            }
            // A datastore that lost the others still answers; one that was restarted does not.
            (None, Some(lost)) if lost > MAJORITY && own_progress(&shared).await.is_none() => {
                view = self::open(&shared).await;
                match &view {
                    Some(_) => reconfigure_store(&shared, &store).await,
                    None => tokio::time::sleep(MAJORITY).await,
                }
            }
            (as_it_is, _) => view = as_it_is,
        }
    }
}

async fn reconfigure_store(shared: &Shared, store: &EtcdStore) {
    if let Err(error) = store.reconfigure(&shared.store_options()).await {
        tracing::error!(error = %error, "cannot pass the location of the copy to the store");
    }
}

/// Returns the progress of the datastore itself, if it answers.
pub(super) async fn own_progress(shared: &Shared) -> Option<DataProgress> {
    let admin = shared.admin();
    let asked = admin.progress(&shared.me.record.client_url);
    tokio::time::timeout(OWN, asked).await.ok()?.ok()
}

/// Returns the progress of the view. It only leads itself, so it does not count as having a leader.
pub(super) async fn progress(shared: &Shared) -> Option<DataProgress> {
    let url = locked(&shared.view).clone()?;
    let progress = shared.admin().progress(&url).await.ok()?;
    Some(DataProgress {
        has_leader: false,
        ..progress
    })
}
