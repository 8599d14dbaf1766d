//! Runs that this node starts automatically: on a schedule, and for a new release.
//!
//! The timers use the kernel's monotonic clock, so setting the wall clock moves no run. A release
//! reaches a whole fleet at once. Each node waits its own part of a splay, which is the same for
//! the same node and release, whichever server announces the release and however often.

use std::time::Duration;

use bunraku_model::{NodeName, ReleaseNumber};
use bunraku_wire::api::Cause;
use bunraku_wire::client::BackOff;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::Shared;

/// The time within which a release's catalog is fetched if the release starts no run. A run does
/// not wait for it.
const FETCH_WITHIN: Duration = Duration::from_secs(10);

/// Requests runs until cancelled.
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
                tracing::warn!(error = %error, "cannot ask a server for a newer catalog");
            }
            // A node without any release has nothing to do.
            if shared.catalogs.targets.current().is_none() {
                continue;
            }
        }
        if let Err(refused) = shared.runs.ask(Cause::Schedule) {
            tracing::info!(%refused, "skipping the scheduled run");
        }
    }
}

async fn on_release(shared: &Shared, shutdown: &CancellationToken) {
    let (targets, options) = (&shared.catalogs.targets, &shared.options.runs);
    loop {
        // A release that an earlier process learned of and did not act on is still pending.
        let Some(target) = targets.pending() else {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = shared.catalogs.changed.notified() => continue,
            }
        };
        let span = if options.on_release {
            options.release_splay
        } else {
            FETCH_WITHIN
        };
        let wait = splay(&shared.options.name, target.release, span);
        tracing::info!(release = %target.release, catalog = %target.catalog.0.short(), mode = ?target.mode, ?wait, "received a new target");
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        // A newer release may have arrived during the wait. One run then serves both.
        let Some(target) = targets.take_pending() else {
            continue;
        };
        if options.on_release {
            let cause = Cause::Release {
                release: target.release,
            };
            if let Err(refused) = shared.runs.ask(cause) {
                tracing::info!(%refused, "skipping the run for a new release");
            }
        } else if let Err(error) = shared.catalogs.complete(&target).await {
            tracing::warn!(error = %error, "cannot fetch the new catalog yet; the next run fetches it");
        }
    }
}

/// Returns this node's delay within the span, for this release.
fn splay(node: &NodeName, release: ReleaseNumber, span: Duration) -> Duration {
    let digest = Sha256::digest(format!("{release} {node}"));
    let number = digest[..8]
        .iter()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    span.mul_f64((number >> 11) as f64 / (1_u64 << 53) as f64)
}

/// Returns a random duration between zero and this span.
fn random_up_to(span: Duration) -> Duration {
    let back_off = BackOff {
        first: span,
        longest: span,
    };
    // The wait is between a quarter of the span and all of it. Shift it to start at zero.
    (back_off.random_wait(0).saturating_sub(span / 4)).mul_f64(4.0 / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(node: usize, release: u64, span: Duration) -> Duration {
        let node = NodeName::new(format!("node-{node}.example.com")).expect("a name");
        splay(&node, ReleaseNumber(release), span)
    }

    #[test]
    fn a_node_waits_the_same_time_for_the_same_release_and_another_for_the_next() {
        let span = Duration::from_secs(60);
        assert_eq!(of(1, 7, span), of(1, 7, span));
        assert_ne!(of(1, 7, span), of(1, 8, span));
        assert_ne!(of(1, 7, span), of(2, 7, span));
    }

    #[test]
    fn a_fleet_is_spread_evenly_over_the_span() {
        let span = Duration::from_secs(10);
        let mut in_second = [0_usize; 10];
        for node in 0..10_000 {
            let wait = of(node, 42, span);
            assert!(wait < span);
            in_second[wait.as_secs() as usize] += 1;
        }
        let even = in_second.iter().all(|count| (850..1_150).contains(count));
        assert!(even, "{in_second:?}");
    }

    #[test]
    fn without_a_splay_no_node_waits() {
        for node in 0..100 {
            assert_eq!(of(node, 1, Duration::ZERO), Duration::ZERO);
        }
    }
}
