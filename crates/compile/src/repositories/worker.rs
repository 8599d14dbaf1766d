//! Synchronizes and polls, on one server at a time.

use std::time::Duration;

use bunraku_control::error::chain;
use bunraku_control::leader::Leadership;
use bunraku_control::{EnvironmentSettings, ServiceError, document, keys};
use bunraku_model::{EnvironmentName, RepositoryName};
use bunraku_store::Follow;
use futures::StreamExt;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Repositories;

/// Maximum number of repositories that are read at once.
const AT_ONCE: usize = 4;
/// The longest time until settings of environments are read again.
const LOOK: Duration = Duration::from_secs(10);
/// Delay before work that failed is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Work that is due.
enum DueWork {
    Sync(RepositoryName),
    Poll(EnvironmentName, Box<EnvironmentSettings>),
}

impl Repositories {
    /// Takes part until cancelled.
    pub async fn run(&self, server: &str, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            if let Err(error) = self.lead(server, &shutdown).await {
                tracing::warn!(error = %chain(&error), "cannot synchronize repositories; trying again");
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    async fn lead(&self, server: &str, shutdown: &CancellationToken) -> Result<(), ServiceError> {
        let key = keys::REPOSITORY_LEADER;
        let campaign = Leadership::campaign(self.store.clone(), key, server, self.leader_ttl);
        let leadership = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            leadership = campaign => leadership?,
        };
        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            () = leadership.keep_alive() => Ok(()),
            outcome = self.work() => outcome,
        };
        leadership.resign().await;
        outcome
    }

    async fn work(&self) -> Result<(), ServiceError> {
        let mut follow = Follow::new(self.store.clone(), keys::REPOSITORIES);
        loop {
            let due = self.due_work().await?;
            let due: Vec<_> = due.into_iter().map(|work| self.perform(work)).collect();
            futures::stream::iter(due)
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<()>>()
                .await;
            tokio::select! {
                followed = follow.next() => { followed?; }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn perform(&self, work: DueWork) {
        let (what, outcome) = match &work {
            DueWork::Sync(name) => (name.to_string(), self.sync(name).await),
            DueWork::Poll(name, settings) => (name.to_string(), self.poll(name, settings).await),
        };
        match outcome {
            Ok(()) | Err(ServiceError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(what, error = %chain(&error), "cannot read the branches of a repository; trying again");
            }
        }
    }

    async fn due_work(&self) -> Result<Vec<DueWork>, ServiceError> {
        let now = self.clock.now();
        let mut due = Vec::new();
        for summary in self.list().await? {
            let last = summary.last.as_ref().map(|last| last.at);
            if summary.waiting || is_due(summary.rules.poll_seconds, last, now) {
                due.push(DueWork::Sync(summary.name));
            }
        }
        for entry in document::read_all(&*self.store, keys::ENVIRONMENTS).await? {
            let Some((name, "settings")) = keys::parse_environment_key(&entry.key) else {
                continue;
            };
            let settings: EnvironmentSettings = document::decode(&entry)?;
            if settings.poll_seconds.is_none() {
                continue;
            }
            let last = self.poll_state(&name).await?.map(|state| state.at);
            if is_due(settings.poll_seconds, last, now) {
                due.push(DueWork::Poll(name, Box::new(settings)));
            }
        }
        Ok(due)
    }
}

/// Returns whether the interval has passed. A clock that was set back does not
/// delay the next time by more than one interval.
fn is_due(seconds: Option<u64>, last: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(seconds) = seconds else {
        return false;
    };
    last.is_none_or(|last| {
        let elapsed = now.duration_since(last).as_secs();
        elapsed < 0 || elapsed.unsigned_abs() >= seconds
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_due_after_its_interval_and_not_without_one() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert!(!is_due(None, None, at(100)));
        assert!(is_due(Some(60), None, at(100)));
        assert!(!is_due(Some(60), Some(at(100)), at(159)));
        assert!(is_due(Some(60), Some(at(100)), at(160)));
        assert!(is_due(Some(60), Some(at(1_000)), at(100)));
    }
}
