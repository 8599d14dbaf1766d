//! What comes round: certificates, and copies of all data.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bunraku_store::etcd::EtcdStore;

use super::{Shared, locked, now};
use crate::datastore::{DatastoreState, Snapshots};
use crate::identity::MemberTls;

const LOOK: Duration = Duration::from_secs(60);

pub(super) async fn run(shared: Arc<Shared>, store: EtcdStore) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = renew(&shared, &store).await {
            tracing::error!(why = %crate::recover::tell(&*error), "the member's certificate was not renewed; trying on");
        }
        copy(&shared).await;
    }
}

/// etcd reads its certificate anew for every connection, so replacing the
/// files is enough for it.
async fn renew(
    shared: &Shared,
    store: &EtcdStore,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (directory, name) = (shared.directory.clone(), shared.name().clone());
    let address = shared.me.record.member_address.clone();
    let tls = tokio::task::spawn_blocking(move || {
        let host = address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        MemberTls::ensure(&directory, &name, host, now())
    })
    .await??;
    if !tls.renewed {
        return Ok(());
    }
    shared.server_tls.reload(&tls.server())?;
    shared.client_tls.reload(&tls.client())?;
    *locked(&shared.tls) = tls;
    store.reconfigure(&shared.store_options()).await?;
    tracing::info!("the member's certificate was renewed");
    Ok(())
}

async fn copy(shared: &Shared) {
    if !matches!(*shared.state.borrow(), DatastoreState::Running { .. }) {
        return;
    }
    let snapshots = Snapshots {
        program: shared.program.clone(),
        directory: shared.directory.clone(),
        keep: shared.options.snapshots_kept,
    };
    let age = snapshots
        .newest()
        .and_then(|newest| SystemTime::now().duration_since(newest).ok());
    if age.is_some_and(|age| age < shared.options.snapshot_every) {
        return;
    }
    let own = &shared.me.record.client_url;
    match snapshots.take(&shared.admin(), own, now()).await {
        Ok(path) => tracing::info!(path = %path.display(), "a snapshot was taken and read back"),
        Err(error) => {
            tracing::error!(why = %crate::recover::tell(&error), "no snapshot was taken; trying on");
        }
    }
}
