//! A copy of this server's own data, from when nobody answers until there is a
//! majority.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::Store;
use bunraku_store::etcd::EtcdStore;

use super::{Shared, locked};
use crate::datastore::{self, View};
use crate::transport::Progress;

const LOOK: Duration = Duration::from_secs(1);

/// Opens one, if this server keeps data.
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
                "no datastore answers: a copy of what this server has is read"
            );
            *locked(&shared.view) = Some(view.url.clone());
            Some(view)
        }
        Err(error) => {
            tracing::warn!(why = %crate::recover::tell(&error), "what this server has cannot be read; trying on");
            None
        }
    }
}

/// Closes it when it is not needed any more.
pub(super) async fn close_in_time(shared: Arc<Shared>, store: EtcdStore, view: View) {
    while store.without_majority_for().is_some() {
        tokio::time::sleep(LOOK).await;
    }
    *locked(&shared.view) = None;
    if let Err(error) = store.reconfigure(&shared.store_options()).await {
        tracing::error!(error = %error, "the store still knows of a copy that is gone");
    }
    view.close().await;
}

/// How far the copy is. It leads itself, which is no leader of anybody.
pub(super) async fn progress(shared: &Shared) -> Option<Progress> {
    let url = locked(&shared.view).clone()?;
    let progress = shared.admin().progress(&url).await.ok()?;
    Some(Progress {
        has_leader: false,
        ..progress
    })
}
