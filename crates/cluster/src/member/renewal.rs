//! Periodic work: certificate renewal and snapshots. Certificates are renewed even
//! without the store: a member without a valid one would be lost to the others just
//! when they need each other.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Shared, locked, now};
use crate::datastore::{DatastoreState, Snapshots};
use crate::identity::MemberTls;

/// Often enough for a certificate with a lifetime of one hour.
const LOOK: Duration = Duration::from_secs(60);

/// Returns the check interval: many times in the last third of a certificate's
/// lifetime, and as often as snapshots are wanted.
fn check_interval(shared: &Shared) -> Duration {
    let lifetime = Duration::try_from(shared.options.certificate_lifetime).unwrap_or(LOOK);
    let often = LOOK.min(lifetime / 30).min(shared.options.snapshot_every);
    often.max(Duration::from_millis(100))
}

pub(super) async fn run(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(check_interval(&shared));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = renew(&shared).await {
            tracing::error!(why = %bunraku_model::error_chain(&*error), "cannot renew the member's certificate; retrying");
        }
        copy(&shared).await;
    }
}

/// Renews the certificate. etcd rereads its certificate for every connection, so
/// replacing the files is enough for it.
async fn renew(shared: &Shared) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (directory, name) = (shared.directory.clone(), shared.name().clone());
    let address = shared.me.record.member_address.clone();
    let lifetime = shared.options.certificate_lifetime;
    let tls = tokio::task::spawn_blocking(move || {
        let host = address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        MemberTls::ensure_for(&directory, &name, host, lifetime, now())
    })
    .await??;
    if !tls.renewed {
        return Ok(());
    }
    shared.server_tls.reload(&tls.server())?;
    shared.client_tls.reload(&tls.client())?;
    *locked(&shared.tls) = tls;
    let store = locked(&shared.store).clone();
    if let Some(store) = store {
        store.reconfigure(&shared.store_options()).await?;
    }
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
        Ok(path) => tracing::info!(path = %path.display(), "created and verified a snapshot"),
        Err(error) => {
            tracing::error!(why = %bunraku_model::error_chain(&error), "cannot create a snapshot; retrying");
        }
    }
}
