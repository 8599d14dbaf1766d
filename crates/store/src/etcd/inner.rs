//! The members, the known state of their majority, and reads with and without one.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, GetResponse};
use tokio::time::Instant;

use super::failure::{Failure, NoAnswer, Refusal};
use super::keys::{Root, revision};
use super::majority::Majority;
use super::members::{self, Members, Repeat};
use super::space::ObservedSpace;
use crate::{LeaseId, NoMajority, Revision, StoreError, stale};

/// An election is over by then. Callers that allow old data get it after this time.
const ELECTION: Duration = Duration::from_secs(3);
/// The time limit for one member to answer alone.
const ALONE: Duration = Duration::from_secs(2);
/// While there is no majority, requests that need one fail after this time.
const WITHOUT_MAJORITY: Duration = Duration::from_millis(500);

pub(super) struct Inner {
    pub(super) members: Members,
    pub(super) majority: Majority,
    pub(super) space: ObservedSpace,
    pub(super) root: Root,
}

impl Inner {
    /// Reads the newest data. If the task allows it and there is no majority, reads the data of one
    /// member.
    pub(super) async fn read(
        self: &Arc<Self>,
        key: Vec<u8>,
        options: GetOptions,
    ) -> Result<GetResponse, Failure> {
        if !stale::is_allowed() {
            return self.read_newest(key, options).await;
        }
        if self.majority.lost_for().is_none() {
            let begun = Instant::now();
            let newest = self.read_newest(key.clone(), options.clone());
            match tokio::time::timeout(ELECTION, newest).await {
                Ok(Err(failure)) if failure.is_mendable() => {}
                Ok(answered) => return answered,
                Err(_) => {}
            }
            self.lose_majority(begun);
        }
        let answer = self.read_alone(&key, &options).await?;
        stale::was_used(self.majority.lost_for().unwrap_or_default());
        Ok(answer)
    }

    async fn read_newest(
        self: &Arc<Self>,
        key: Vec<u8>,
        options: GetOptions,
    ) -> Result<GetResponse, Failure> {
        let answer = self
            .call(Repeat::Always, |_, mut member| {
                let (key, options) = (key.clone(), options.clone());
                async move { member.keys.get(key, Some(options)).await }
            })
            .await?;
        self.members
            .note_term(answer.header().map_or(0, |header| header.raft_term()));
        Ok(answer)
    }

    /// Reads the data of the first member that answers, new or old.
    async fn read_alone(&self, key: &[u8], options: &GetOptions) -> Result<GetResponse, Failure> {
        let options = options.clone().with_serializable();
        let mut failure = Failure::NotDone("no etcd member".into());
        for mut member in self.members.readable_alone() {
            let asked = member.alone.get(key, Some(options.clone()));
            failure = match tokio::time::timeout(ALONE, asked).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::NotDone(Box::new(NoAnswer(ALONE))),
            };
            if !failure.is_mendable() {
                return Err(failure);
            }
            failure = failure.at(&member.endpoint);
        }
        Err(failure)
    }

    /// Returns whether any member answers, even if only for itself.
    pub(super) async fn any_answers(&self) -> bool {
        let Ok(root) = self.root.prefix("") else {
            return false;
        };
        let options = GetOptions::new().with_count_only();
        self.read_alone(&root, &options).await.is_ok()
    }

    /// Like [`Members::call`], but gives up early while there is no majority, and detects the loss
    /// of the majority.
    pub(super) async fn call<T, F>(
        self: &Arc<Self>,
        repeat: Repeat,
        attempt: impl Fn(usize, members::Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let begun = Instant::now();
        // A member that hangs leaves the outcome of a write open. While there is no majority the
        // write cannot succeed, so it is not even sent.
        if repeat == Repeat::OnlyIfNotDone && self.majority.lost_for().is_some() {
            return Err(Failure::NotDone(
                "nothing is sent until a member is known".into(),
            ));
        }
        let answered = match self.majority.lost_for() {
            None => self.members.call(repeat, attempt).await,
            Some(_) => {
                let patience = WITHOUT_MAJORITY;
                self.members.call_for(patience, repeat, attempt).await
            }
        };
        match &answered {
            // All members were tried for long. An unknown outcome of a write is returned at once,
            // and says nothing about the other members.
            Err(Failure::NotDone(_)) => self.lose_majority(begun),
            Err(Failure::Unknown(_)) if repeat == Repeat::Always => self.lose_majority(begun),
            Ok(_) => self.majority.mark_regained(),
            _ => {}
        }
        answered
    }

    /// Records the loss of the majority. From now on, old data is returned where it is allowed, and
    /// a task keeps trying until there is a majority again.
    fn lose_majority(self: &Arc<Self>, since: Instant) {
        if !self.majority.mark_lost(since) {
            return;
        }
        tracing::error!("no majority of the datastores answers: writes are suspended");
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                if inner.majority.lost_for().is_none() {
                    break;
                }
                // An answer restores the majority.
                let _ = inner.newest_revision().await;
                drop(inner);
                tokio::time::sleep(WITHOUT_MAJORITY).await;
            }
            tracing::warn!("a majority of the datastores answers again");
        });
    }

    /// Converts the failure of a request that needs a majority.
    pub(super) fn unavailable(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Refused(refusal) => refusal.into_error(),
            mendable => StoreError::Unavailable(self.without_majority(mendable.into_source())),
        }
    }

    pub(super) fn without_majority(
        &self,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> Box<dyn std::error::Error + Send + Sync> {
        match self.majority.lost_for() {
            None => source,
            Some(lasting) => Box::new(NoMajority { lasting, source }),
        }
    }

    /// Returns the newest revision of the cluster, not only of the member that answers.
    pub(super) async fn newest_revision(self: &Arc<Self>) -> Result<Revision, StoreError> {
        let options = GetOptions::new().with_count_only();
        // Reads one key that need not exist: only the answer's header matters.
        let root = self.root.prefix("")?;
        let response = self.read_newest(root, options).await;
        let response = response.map_err(|failure| self.unavailable(failure))?;
        Ok(revision(
            response.header().map_or(0, |header| header.revision()),
        ))
    }

    pub(super) fn about_lease(&self, lease: LeaseId, failure: Failure) -> StoreError {
        match failure {
            Failure::Refused(Refusal::LeaseNotFound) => StoreError::LeaseNotFound(lease),
            other => self.unavailable(other),
        }
    }
}
