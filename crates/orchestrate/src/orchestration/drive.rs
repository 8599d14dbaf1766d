//! Every server offers to lead every open run; one does.

use std::collections::HashMap;

use bunraku_model::RunId;
use bunraku_store::{Follow, FollowEvent};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Inner, Orchestration};
use bunraku_control::leader::Leadership;
use bunraku_control::{ServiceError, document, keys};

/// The delay after an unexpected failure.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

impl Orchestration {
    /// Leads runs until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let mut tasks: HashMap<RunId, JoinHandle<()>> = HashMap::new();
        let mut follow = Follow::new(self.inner.store.clone(), keys::OPEN_RUNS);
        loop {
            let followed = tokio::select! {
                () = stop.cancelled() => break,
                followed = follow.next() => followed,
            };
            let opened = match followed {
                Ok(followed) => followed.into_puts(),
                Err(error) => {
                    tracing::error!(error = %error, "cannot follow the runs");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            tasks.retain(|_, task| !task.is_finished());
            for run in (opened.iter()).filter_map(|item| keys::parse_open_run(&item.key)) {
                let (service, stop) = (self.clone(), stop.clone());
                tasks.entry(run).or_insert_with(|| {
                    tokio::spawn(async move { service.lead_until_ended(run, stop).await })
                });
            }
        }
        for (_, task) in tasks {
            // Each task ends on its own, and revokes its lease.
            if let Err(error) = task.await {
                tracing::error!(error = %error, "leading a run failed");
            }
        }
    }

    /// Leads the run whenever it has no leader, until it has ended.
    async fn lead_until_ended(&self, run: RunId, stop: CancellationToken) {
        loop {
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.inner.lead_once(run, &stop) => outcome,
            };
            match outcome {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%run, error = &error as &dyn std::error::Error, "leading a run failed; retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

impl Orchestration {
    /// Returns the runs that this server leads.
    pub async fn led_here(&self) -> Result<Vec<RunId>, ServiceError> {
        let own = format!("{}/", self.inner.server);
        let leaders = document::read_all(&*self.inner.store, keys::RUN_LEADERS).await?;
        let led = leaders.iter().filter_map(|entry| {
            let run = entry.key.strip_prefix(keys::RUN_LEADERS)?.parse().ok()?;
            entry.value.starts_with(own.as_bytes()).then_some(run)
        });
        Ok(led.collect())
    }
}

impl Inner {
    /// Waits to become the leader, and leads as long as possible. Returns true if
    /// the run has ended.
    async fn lead_once(&self, run: RunId, stop: &CancellationToken) -> Result<bool, ServiceError> {
        let fence = format!("{}/{}", self.server, Uuid::new_v4());
        let key = keys::run_leader(run);
        let ttl = self.options.leader_ttl;
        let leadership = tokio::select! {
            leadership = Leadership::campaign(self.store.clone(), &key, &fence, ttl) => leadership?,
            over = self.wait_for_end(run) => return over.map(|()| true),
        };
        tracing::info!(%run, "this server leads the run");
        let outcome = tokio::select! {
            outcome = self.lead(run, fence.into()) => outcome,
            () = leadership.keep_alive() => {
                tracing::warn!(%run, "this server no longer leads the run");
                Ok(false)
            }
            () = stop.cancelled() => Ok(true),
        };
        leadership.resign().await;
        outcome
    }

    async fn wait_for_end(&self, run: RunId) -> Result<(), ServiceError> {
        let mut follow = Follow::new(self.store.clone(), keys::run_end(run));
        loop {
            match follow.next().await? {
                FollowEvent::Snapshot { items, .. } if items.is_empty() => {}
                _ => return Ok(()),
            }
        }
    }
}
