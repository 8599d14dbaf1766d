//! SWIM with a clock and a network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::api::cluster::MemberState;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Shared, now};
use crate::membership::{MemberIdentity, PeerView, Swim, SwimState};
use crate::transport::{IncomingMessage, Senders};

/// The interval at which members that are dead or unknown are contacted.
const INTRODUCE: Duration = Duration::from_secs(2);
/// The time that a farewell has to leave this machine.
const FAREWELL: Duration = Duration::from_millis(300);

/// The last known state of another member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PeerState {
    pub(super) state: MemberState,
    /// On the monotonic clock; [`time_of`] converts it for people.
    pub(super) since: Instant,
    pub(super) said_by: NodeName,
}

/// The states of the other members as this member knows them.
#[derive(Clone, Debug)]
pub(super) struct PeerStates {
    pub(super) begun: Instant,
    pub(super) health_score: u32,
    pub(super) members: BTreeMap<NodeName, PeerState>,
}

impl PeerStates {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            health_score: 0,
            members: BTreeMap::new(),
        }
    }
}

/// Converts a monotonic time to the time of day, based on the current time of day.
pub(super) fn time_of(then: Instant) -> Timestamp {
    let passed = SignedDuration::try_from(then.elapsed()).unwrap_or(SignedDuration::MAX);
    now() - passed
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    swim: Swim,
    begun: Instant,
    inbox: mpsc::Receiver<IncomingMessage>,
    senders: Senders,
    sights: watch::Sender<PeerStates>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        identity: MemberIdentity,
        inbox: mpsc::Receiver<IncomingMessage>,
        sights: watch::Sender<PeerStates>,
    ) -> Self {
        let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
        let swim = Swim::new(identity, &shared.options.swim, seed);
        Self {
            senders: Senders::new(shared.dialer(), shared.stop.child_token()),
            swim,
            begun: Instant::now(),
            inbox,
            sights,
            shared,
        }
    }

    pub(super) async fn run(mut self) {
        let mut look = tokio::time::interval(INTRODUCE);
        loop {
            let due = self.swim.next_due().map_or_else(
                || Instant::now() + Duration::from_secs(3600),
                |due| self.begun + due,
            );
            tokio::select! {
                () = self.shared.stop.cancelled() => return self.announce_leave().await,
                Some(message) = self.inbox.recv() => self.take(&message),
                _ = look.tick() => self.introduce(),
                () = tokio::time::sleep_until(due) => {}
            }
            // Messages that arrived come before timers that are due: an unread
            // answer must not count as silence.
            while let Ok(message) = self.inbox.try_recv() {
                self.take(&message);
            }
            self.swim.tick(self.begun.elapsed());
            self.pass_on();
        }
    }

    fn take(&mut self, message: &IncomingMessage) {
        self.swim
            .receive(&message.from, &message.data, self.begun.elapsed());
    }

    /// Contacts members that are not known to be alive: they may have been away
    /// when this member started, or may be back.
    fn introduce(&mut self) {
        let known = self.shared.known();
        let own = self.shared.name();
        let strangers = known.members.iter().filter(|record| {
            let state = self.swim.view(&record.name).map(|sight| sight.state);
            record.name != *own && !matches!(state, Some(SwimState::Alive | SwimState::Suspect))
        });
        let strangers: Vec<MemberIdentity> = strangers
            .map(|record| MemberIdentity {
                name: record.name.clone(),
                address: record.member_address.clone(),
                life: 0,
                leaving: false,
            })
            .collect();
        self.swim.introduce(strangers, self.begun.elapsed());
    }

    fn pass_on(&mut self) {
        for message in self.swim.take_outgoing() {
            let to = &message.to;
            self.senders.send(&to.name, &to.address, message.data);
        }
        let seen = |sight: &PeerView| PeerState {
            state: match sight.state {
                SwimState::Alive => MemberState::Alive,
                SwimState::Suspect => MemberState::Suspect,
                SwimState::Dead => MemberState::Dead,
                SwimState::Left => MemberState::Left,
            },
            since: self.begun + sight.since,
            said_by: sight.said_by.clone(),
        };
        let fresh: BTreeMap<_, _> = self
            .swim
            .views()
            .map(|sight| (sight.identity.name.clone(), seen(sight)))
            .collect();
        let score = self.swim.health_score();
        self.sights.send_if_modified(|sights| {
            let same = |one: &PeerState, other: &PeerState| {
                one.state == other.state && one.said_by == other.said_by
            };
            let unchanged = sights.members.len() == fresh.len()
                && fresh.iter().all(|(name, seen)| {
                    sights.members.get(name).is_some_and(|old| same(old, seen))
                });
            let news = !unchanged || sights.health_score != score;
            if news {
                log_changes(&sights.members, &fresh);
                sights.members = fresh;
                sights.health_score = score;
            }
            news
        });
    }

    async fn announce_leave(mut self) {
        self.swim.leave(self.begun.elapsed());
        let farewell = tokio_util::sync::CancellationToken::new();
        let mut senders = Senders::new(self.shared.dialer(), farewell.clone());
        for message in self.swim.take_outgoing() {
            senders.send(&message.to.name, &message.to.address, message.data);
        }
        tokio::time::sleep(FAREWELL).await;
        farewell.cancel();
    }
}

fn state_word(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Suspect => "suspect",
        MemberState::Dead => "dead",
        MemberState::Left => "left",
    }
}

fn log_changes(before: &BTreeMap<NodeName, PeerState>, after: &BTreeMap<NodeName, PeerState>) {
    for (name, seen) in after {
        let known = before.get(name).map(|known| known.state);
        if known != Some(seen.state) {
            tracing::info!(member = %name, state = state_word(seen.state), said_by = %seen.said_by, "a member changed");
        }
    }
}
