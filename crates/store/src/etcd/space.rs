//! The space of etcd's members: observes it, reclaims it, and clears the alarm of a full etcd.
//!
//! etcd counts unused pages of its file towards the quota. Only a defragmentation returns them, and
//! the member answers nothing that needs its data meanwhile. When a member exceeds its quota, etcd
//! raises an alarm: until it is cleared, every write is refused except for deletions and
//! compactions.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, StatusResponse};
use tokio::time::Instant;

use super::failure::{Failure, NoAnswer};
use super::inner::Inner;
use super::members::Member;
use crate::{MemberSpace, StoreError, StoreSpace};

/// The time limit for a member to report its status.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time limit for the defragmentation of one member. Large files take minutes.
const DEFRAGMENTATION: Duration = Duration::from_secs(1_800);

/// The time limit for a member to drop the history that others have dropped.
const COMPACTION: Duration = Duration::from_secs(60);
/// The first pause before such a member is defragmented again.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The reason why no space was reclaimed.
#[derive(Debug, thiserror::Error)]
enum ReclaimError {
    #[error(
        "etcd at {0} does not answer or has no leader; members pause only while all are healthy"
    )]
    Unhealthy(String),
    #[error("the members of etcd name different leaders")]
    Election,
}

/// The last observation.
#[derive(Default)]
pub(super) struct ObservedSpace(RwLock<Option<StoreSpace>>);

impl ObservedSpace {
    pub(super) fn last(&self) -> Option<StoreSpace> {
        let last = self.0.read().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    fn set(&self, space: &StoreSpace) {
        let mut last = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some(space.clone());
    }

    /// Records that a member refused a write for lack of space.
    pub(super) fn note_alarm(&self) {
        let mut last = self.0.write().unwrap_or_else(PoisonError::into_inner);
        last.get_or_insert_default().is_alarm_raised = true;
    }

    /// Describes the space for an error.
    pub(super) fn describe(&self) -> String {
        let last = self.last().unwrap_or_default();
        if last.is_alarm_raised {
            format!("etcd raised its NOSPACE alarm; {last}")
        } else {
            last.to_string()
        }
    }
}

impl Inner {
    /// Asks all members. Those that do not answer are left out.
    pub(super) async fn observe_space(&self) -> Result<StoreSpace, StoreError> {
        let members = self.members.all();
        let asked = members.iter().map(|member| async move {
            let status = status(member).await.ok()?;
            let quota_bytes = match u64::try_from(status.db_size_quota()) {
                // Only etcd 3.6 and later says.
                Ok(0) | Err(_) => member.quota.bytes().await,
                Ok(quota) => Some(quota),
            };
            Some((status, member.endpoint.clone(), quota_bytes))
        });
        let answers = futures::future::join_all(asked).await;
        let mut space = StoreSpace::default();
        for (status, name, quota_bytes) in answers.into_iter().flatten() {
            space.is_alarm_raised |= has_alarm(&status);
            space.members.push(MemberSpace {
                name,
                size_bytes: bytes(status.db_size()),
                used_bytes: bytes(status.raft_used_db_size()),
                quota_bytes,
            });
        }
        if space.members.is_empty() {
            return Err(StoreError::Unavailable("no etcd member answers".into()));
        }
        self.space.set(&space);
        Ok(space)
    }

    /// Defragments one member after the other, then clears the alarm if there is room.
    pub(super) async fn reclaim_space(&self) -> Result<(), StoreError> {
        let before = self.observe_space().await?;
        let members = self.members_to_defragment(&before).await?;
        let is_urgent = before.is_alarm_raised;
        for member in &members {
            self.defragment(member, is_urgent).await?;
        }
        self.defragment_late_members(is_urgent).await?;
        let after = self.observe_space().await?;
        if after.is_alarm_raised && after.has_room_below_quota() {
            self.clear_alarm().await?;
            self.observe_space().await?;
        }
        Ok(())
    }

    async fn defragment(&self, member: &Member, is_urgent: bool) -> Result<(), StoreError> {
        // The others have to carry the cluster while this one pauses.
        if !is_urgent {
            self.leader_of_all().await?;
        }
        tracing::info!(member = member.endpoint, "defragmenting a datastore");
        let mut client = member.status.clone();
        let work = tokio::time::timeout(DEFRAGMENTATION, client.defragment());
        let outcome = match work.await {
            Ok(outcome) => outcome.map(drop).map_err(Failure::from),
            Err(_) => Err(Failure::Unknown(Box::new(NoAnswer(DEFRAGMENTATION)))),
        };
        outcome
            .map_err(|failure| StoreError::Unavailable(failure.at(&member.endpoint).into_source()))
    }

    /// Repeats the work on members that stayed larger than others with the same data. Each member
    /// applies a compaction in its own time, and what it drops after its defragmentation stays in
    /// its file. The size of a file after a defragmentation is exact, unlike the space that etcd
    /// reports as used, which it updates only with later writes.
    async fn defragment_late_members(&self, is_urgent: bool) -> Result<(), StoreError> {
        let deadline = Instant::now() + COMPACTION;
        let mut pause = FIRST_PAUSE;
        loop {
            let space = self.observe_space().await?;
            let members = self.members.all();
            let late = members.iter().filter(|it| space.is_oversized(&it.endpoint));
            let late: Vec<Member> = late.cloned().collect();
            if late.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                // Better some space than none. The next attempt returns the rest.
                tracing::warn!(%space, "a datastore takes long to drop its history");
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            for member in &late {
                self.defragment(member, is_urgent).await?;
            }
        }
    }

    /// Returns the members whose file has unused space, the leader last.
    ///
    /// While the alarm is raised nothing can be written, so a pause does no harm, and the members
    /// that answer are enough: replacing a dead member requires writes.
    async fn members_to_defragment(&self, space: &StoreSpace) -> Result<Vec<Member>, StoreError> {
        let leader = match self.leader_of_all().await {
            Err(_) if space.is_alarm_raised => None,
            found => Some(found?),
        };
        let is_worth_it = |member: &&Member| {
            let mut known = space.members.iter();
            known.any(|known| known.name == member.endpoint && known.unused_bytes() > 0)
        };
        let members = self.members.all();
        let mut members: Vec<Member> = members.iter().filter(is_worth_it).cloned().collect();
        members.sort_by_key(|member| Some(&member.endpoint) == leader.as_ref());
        Ok(members)
    }

    /// Returns the endpoint of the leader, if all members answer and agree on it. Empty if the
    /// leader is not among the known endpoints.
    async fn leader_of_all(&self) -> Result<String, StoreError> {
        let (mut leaders, mut endpoint) = (Vec::new(), String::new());
        for member in self.members.all().iter() {
            let status = status(member).await.ok();
            let status = status.filter(|status| status.leader() != 0 && !status.is_learner());
            let Some(status) = status else {
                let unhealthy = ReclaimError::Unhealthy(member.endpoint.clone());
                return Err(StoreError::Unavailable(Box::new(unhealthy)));
            };
            let own = status.header().map_or(0, |header| header.member_id());
            if own == status.leader() {
                endpoint.clone_from(&member.endpoint);
            }
            leaders.push(status.leader());
        }
        leaders.dedup();
        if leaders.len() > 1 {
            return Err(StoreError::Unavailable(Box::new(ReclaimError::Election)));
        }
        Ok(endpoint)
    }

    async fn clear_alarm(&self) -> Result<(), StoreError> {
        let failed = |failure: Failure| StoreError::Unavailable(failure.into_source());
        let (_, member) = self.members.current();
        let mut client = member.status.clone();
        let raised = client.alarm(AlarmAction::Get, AlarmType::Nospace, None);
        let raised = raised.await.map_err(|error| failed(error.into()))?;
        for alarm in raised.alarms() {
            if alarm.alarm() != AlarmType::Nospace {
                continue;
            }
            // The alarm of another member is not cleared by clearing one's own.
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member_id());
            let cleared = client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options));
            cleared.await.map_err(|error| failed(error.into()))?;
        }
        tracing::warn!("cleared etcd's NOSPACE alarm: there is room again");
        Ok(())
    }
}

async fn status(member: &Member) -> Result<StatusResponse, Failure> {
    let mut client = member.status.clone();
    match tokio::time::timeout(PATIENCE, client.status()).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::NotDone(Box::new(NoAnswer(PATIENCE)))),
    }
}

/// Returns whether the status names the alarm. Asking for alarms directly is a write in etcd's log.
fn has_alarm(status: &StatusResponse) -> bool {
    status
        .errors()
        .iter()
        .any(|error| error.contains("NOSPACE"))
}

fn bytes(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
