//! Runs that this node asks for by itself: on a schedule, and for a new release.
//!
//! The timers are the kernel's monotonic ones: setting the clock moves no run.

use std::time::Duration;

use bunraku_wire::api::Cause;
use bunraku_wire::client::BackOff;
use tokio_util::sync::CancellationToken;

use crate::Shared;

/// A new target is fetched within this, so that a fleet that hears of a
/// release at once does not come at once. A run does not wait for it.
const FETCH_WITHIN: Duration = Duration::from_secs(10);

/// Asks for runs until cancelled.
pub(crate) async fn ask_for_runs(shared: &Shared, shutdown: &CancellationToken) {
    tokio::join!(on_schedule(shared, shutdown), on_release(shared, shutdown));
}

async fn on_schedule(shared: &Shared, shutdown: &CancellationToken) {
    let options = &shared.options.runs;
    let Some(interval) = options.interval else {
        return;
    };
    let mut wait = random_up_to(options.splay.min(interval));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = interval;
        if options.method.is_of_releases() {
            if let Err(error) = shared.catalogs.ask().await {
                tracing::warn!(error = %error, "no server can be asked for a newer catalog");
            }
            // A node that nothing was ever released for has nothing to do.
            if shared.catalogs.targets.known().is_none() {
                continue;
            }
        }
        if let Err(refused) = shared.runs.ask(Cause::Schedule) {
            tracing::info!(%refused, "the scheduled run is left out");
        }
    }
}

async fn on_release(shared: &Shared, shutdown: &CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.catalogs.changed.notified() => {}
        }
        let Some(target) = shared.catalogs.targets.known() else {
            continue;
        };
        tracing::info!(release = %target.release, catalog = %target.catalog.0.short(), mode = ?target.mode, "there is a new target");
        if shared.options.runs.on_release {
            let cause = Cause::Release {
                release: target.release,
            };
            if let Err(refused) = shared.runs.ask(cause) {
                tracing::info!(%refused, "the run for a new release is left out");
            }
            continue;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(random_up_to(FETCH_WITHIN)) => {}
        }
        if let Err(error) = shared.catalogs.complete(&target).await {
            tracing::warn!(error = %error, "the new catalog is fetched when a run needs it");
        }
    }
}

/// Anywhere between nothing and this.
fn random_up_to(span: Duration) -> Duration {
    let back_off = BackOff {
        first: span,
        longest: span,
    };
    // From a quarter of the span to all of it, moved to its beginning.
    (back_off.random_wait(0).saturating_sub(span / 4)).mul_f64(4.0 / 3.0)
}
