//! SWIM, driven by a caller with a clock and a network.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use bunraku_model::NodeName;
use bytes::Bytes;
use foca::{AccumulatingRuntime, Foca, Member, NoCustomBroadcast, PeriodicParams, State, Timer};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::codec::JsonCodec;
use super::health::LocalHealth;
use super::identity::MemberIdentity;

/// The longest message in bytes. Members are few: all updates fit.
const LARGEST_MESSAGE: usize = 32 << 10;

/// The timing of failure detection.
#[derive(Clone, Debug)]
pub struct SwimOptions {
    /// The interval between probes. Each probes one other member.
    pub probe_period: Duration,
    /// The time after which other members are asked to probe it, too.
    pub probe_timeout: Duration,
    /// The time that a suspect has to refute the suspicion.
    pub suspicion: Duration,
    /// Off only in tests that show why the guard is needed.
    pub guard: bool,
}

impl Default for SwimOptions {
    fn default() -> Self {
        Self {
            probe_period: Duration::from_secs(1),
            probe_timeout: Duration::from_millis(300),
            suspicion: Duration::from_secs(4),
            guard: true,
        }
    }
}

impl SwimOptions {
    fn config(&self) -> foca::Config {
        let some = |count| NonZeroUsize::new(count).expect("not zero");
        let often = |frequency, count| {
            Some(PeriodicParams {
                frequency,
                num_members: some(count),
            })
        };
        foca::Config {
            probe_period: self.probe_period,
            probe_rtt: self.probe_timeout,
            num_indirect_probes: some(3),
            max_transmissions: NonZeroU8::new(8).expect("not zero"),
            suspect_to_down_after: self.suspicion,
            // A returning member has a newer life; the old one stays dead.
            remove_down_after: Some(Duration::from_secs(48 * 3600)),
            max_packet_size: some(LARGEST_MESSAGE),
            notify_down_members: true,
            periodic_announce: often(self.probe_period * 10, 1),
            periodic_announce_to_down_members: often(self.probe_period * 5, 2),
            periodic_gossip: often(self.probe_period / 4, 3),
        }
    }

    fn health(&self) -> LocalHealth {
        if self.guard {
            LocalHealth::new(self.probe_timeout / 2)
        } else {
            LocalHealth::disabled()
        }
    }
}

/// The known state of another member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwimState {
    Alive,
    Suspect,
    Dead,
    Left,
}

/// The state of another member as this one knows it, since when, and from whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerView {
    pub identity: MemberIdentity,
    pub state: SwimState,
    /// On the clock that [`Swim`] is driven with.
    pub since: Duration,
    /// The sender of the message that said so; this member's own name for its own observations.
    pub said_by: NodeName,
}

/// A message to send. Losing it does no harm.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    pub to: MemberIdentity,
    pub data: Bytes,
}

type TimerQueue = BTreeMap<(Duration, u64), Timer<MemberIdentity>>;

/// One member's side of the protocol.
pub struct Swim {
    foca: Foca<MemberIdentity, JsonCodec, StdRng, NoCustomBroadcast>,
    runtime: AccumulatingRuntime<MemberIdentity>,
    timers: TimerQueue,
    counter: u64,
    health: LocalHealth,
    sights: BTreeMap<NodeName, PeerView>,
    name: NodeName,
    outgoing: Vec<OutgoingMessage>,
}

impl Swim {
    pub fn new(identity: MemberIdentity, options: &SwimOptions, seed: u64) -> Self {
        let name = identity.name.clone();
        let rng = StdRng::seed_from_u64(seed);
        Self {
            foca: Foca::new(identity, options.config(), rng, JsonCodec),
            runtime: AccumulatingRuntime::new(),
            timers: BTreeMap::new(),
            counter: 0,
            health: options.health(),
            sights: BTreeMap::new(),
            name,
            outgoing: Vec::new(),
        }
    }

    /// Returns this member's identity as the others know it now.
    pub fn identity(&self) -> &MemberIdentity {
        self.foca.identity()
    }

    /// Returns the health score of this member itself: 0 is healthy.
    pub fn health_score(&self) -> u32 {
        self.health.score()
    }

    /// Contacts members that were known before, or that another source knows, to be
    /// accepted by them.
    pub fn introduce(&mut self, others: impl IntoIterator<Item = MemberIdentity>, now: Duration) {
        for other in others {
            if other.name != self.name {
                let asked = self.foca.announce(other, &mut self.runtime);
                self.note("an announcement", asked);
            }
        }
        self.settle(now, None);
    }

    /// Handles a message from a member. The transport has authenticated the sender.
    pub fn receive(&mut self, from: &NodeName, data: &[u8], now: Duration) {
        let taken = self.foca.handle_data(data, &mut self.runtime);
        self.note("a message", taken);
        self.settle(now, Some(from));
    }

    /// Returns the time at which [`Swim::tick`] has something to do.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Runs the timers that are due. Read all messages that arrived before calling this.
    pub fn tick(&mut self, now: Duration) {
        let late = self
            .next_due()
            .map_or(Duration::ZERO, |due| now.saturating_sub(due));
        if let Some(shift) = self.health.observe(late) {
            self.postpone(shift);
            return;
        }
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let timer = entry.remove();
            if matches!(timer, Timer::ProbeRandomMember(_)) {
                self.health.recover();
            }
            let handled = self.foca.handle_timer(timer, &mut self.runtime);
            self.note("a timer", handled);
            self.settle(now, None);
        }
    }

    /// Moves all timers: this member did not run, so nothing that it waits for is late.
    fn postpone(&mut self, shift: Duration) {
        tracing::debug!(
            ?shift,
            score = self.health.score(),
            "this member was suspended for a while"
        );
        self.timers = std::mem::take(&mut self.timers)
            .into_iter()
            .map(|((due, number), timer)| ((due + shift, number), timer))
            .collect();
    }

    /// Returns the messages to send, in order.
    pub fn take_outgoing(&mut self) -> Vec<OutgoingMessage> {
        std::mem::take(&mut self.outgoing)
    }

    /// Returns the states of all other members, by name.
    pub fn views(&self) -> impl Iterator<Item = &PeerView> {
        self.sights.values()
    }

    pub fn view(&self, name: &NodeName) -> Option<&PeerView> {
        self.sights.get(name)
    }

    /// Says goodbye: the others see this member as left, not as dead.
    pub fn leave(&mut self, now: Duration) {
        let goodbye = MemberIdentity {
            leaving: true,
            life: self.identity().life.saturating_add(1),
            ..self.identity().clone()
        };
        let changed = self.foca.change_identity(goodbye, &mut self.runtime);
        self.note("a farewell", changed);
        let left = self.foca.leave_cluster(&mut self.runtime);
        self.note("a farewell", left);
        self.settle(now, None);
    }

    /// Logs an error. A peer may send invalid data; that is its problem, but worth a log line.
    fn note(&self, what: &str, outcome: Result<(), foca::Error>) {
        if let Err(error) = outcome {
            tracing::debug!(error = %error, "{what} had no effect");
        }
    }

    fn settle(&mut self, now: Duration, from: Option<&NodeName>) {
        while let Some((after, timer)) = self.runtime.to_schedule() {
            let after = match timer {
                Timer::ProbeRandomMember(_)
                | Timer::SendIndirectProbe { .. }
                | Timer::ChangeSuspectToDown { .. } => self.health.stretch(after),
                _ => after,
            };
            self.counter += 1;
            self.timers.insert((now + after, self.counter), timer);
        }
        while let Some((to, data)) = self.runtime.to_send() {
            self.outgoing.push(OutgoingMessage { to, data });
        }
        while self.runtime.to_notify().is_some() {}
        self.update_views(now, from);
    }

    fn update_views(&mut self, now: Duration, from: Option<&NodeName>) {
        let mut names = BTreeSet::new();
        for member in self.foca.iter_membership_state() {
            let identity = member.id();
            if identity.name == self.name || !names.insert(identity.name.clone()) {
                continue;
            }
            let state = state_of(member);
            let known = self.sights.get(&identity.name);
            if known.is_some_and(|known| known.state == state && known.identity == *identity) {
                continue;
            }
            let same_state = known.filter(|known| known.state == state);
            let sight = PeerView {
                identity: identity.clone(),
                state,
                since: same_state.map_or(now, |known| known.since),
                said_by: from.unwrap_or(&self.name).clone(),
            };
            self.sights.insert(identity.name.clone(), sight);
        }
    }
}

fn state_of(member: &Member<MemberIdentity>) -> SwimState {
    match (member.state(), member.id().leaving) {
        (State::Alive, false) => SwimState::Alive,
        (State::Suspect, false) => SwimState::Suspect,
        (State::Down, false) => SwimState::Dead,
        (_, true) => SwimState::Left,
    }
}
