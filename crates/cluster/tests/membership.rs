//! Tests membership in virtual time: a network with delay and loss, and members
//! that get no CPU. Every run has a seed, which is printed when the run fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bunraku_cluster::membership::{MemberIdentity, Swim, SwimOptions, SwimState};
use bunraku_model::NodeName;
use bytes::Bytes;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const STEP: Duration = Duration::from_millis(10);
const STARVED: usize = 1;

fn name(number: usize) -> NodeName {
    NodeName::new(format!("server-{number}")).expect("a valid name")
}

fn identity(number: usize, life: u64) -> MemberIdentity {
    MemberIdentity {
        name: name(number),
        address: format!("127.0.0.1:{}", 9000 + number),
        life,
        leaving: false,
    }
}

struct Message {
    from: usize,
    to: usize,
    data: Bytes,
}

struct Fleet {
    now: Duration,
    members: Vec<Option<Swim>>,
    inboxes: Vec<VecDeque<(usize, Bytes)>>,
    flying: BTreeMap<(Duration, u64), Message>,
    counter: u64,
    random: StdRng,
    loss: f64,
    cut: BTreeSet<(usize, usize)>,
    /// Members that run only at these times.
    starved: BTreeMap<usize, Duration>,
    /// Milliseconds between two such times.
    gap: std::ops::Range<u64>,
    options: SwimOptions,
    /// Every death that any member believed in: the observer and the subject.
    deaths: BTreeSet<(usize, usize)>,
}

impl Fleet {
    fn new(size: usize, seed: u64, options: SwimOptions) -> Self {
        let mut fleet = Self {
            now: Duration::from_secs(1),
            members: (0..size)
                .map(|number| {
                    Some(Swim::new(
                        identity(number, 1),
                        &options,
                        seed ^ number as u64,
                    ))
                })
                .collect(),
            inboxes: vec![VecDeque::new(); size],
            flying: BTreeMap::new(),
            counter: 0,
            random: StdRng::seed_from_u64(seed),
            loss: 0.0,
            cut: BTreeSet::new(),
            starved: BTreeMap::new(),
            gap: 1500..2600,
            options,
            deaths: BTreeSet::new(),
        };
        for number in 0..size {
            fleet.introduce(number);
        }
        fleet
    }

    fn introduce(&mut self, number: usize) {
        let size = self.members.len();
        let others = (0..size).filter(|other| *other != number);
        let others: Vec<_> = others.map(|other| identity(other, 1)).collect();
        let now = self.now;
        if let Some(member) = &mut self.members[number] {
            member.introduce(others, now);
        }
        self.send_from(number);
    }

    fn send_from(&mut self, from: usize) {
        let Some(member) = &mut self.members[from] else {
            return;
        };
        for message in member.take_outgoing() {
            let to: usize = message.to.name.as_str()["server-".len()..]
                .parse()
                .expect("a number");
            if self.cut.contains(&(from, to)) || self.random.random_bool(self.loss) {
                continue;
            }
            let delay = Duration::from_millis(self.random.random_range(1..20));
            self.counter += 1;
            let data = message.data;
            self.flying
                .insert((self.now + delay, self.counter), Message { from, to, data });
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            while let Some(entry) = self.flying.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let message = entry.remove();
                self.inboxes[message.to].push_back((message.from, message.data));
            }
            for number in 0..self.members.len() {
                self.live(number);
            }
        }
    }

    /// A member with CPU time reads first, then acts. A starved one wakes rarely,
    /// runs its timers before its sockets, and soon sleeps again.
    fn live(&mut self, number: usize) {
        match self.starved.get(&number) {
            Some(wakes) if self.now < *wakes => return,
            Some(_) => {
                self.tick(number);
                self.read(number, 60);
                let gap = self.random.random_range(self.gap.clone());
                self.starved
                    .insert(number, self.now + Duration::from_millis(gap));
            }
            None => {
                self.read(number, usize::MAX);
                self.tick(number);
            }
        }
        self.send_from(number);
        self.note_deaths(number);
    }

    fn tick(&mut self, number: usize) {
        let now = self.now;
        if let Some(member) = &mut self.members[number]
            && member.next_due().is_some_and(|due| due <= now)
        {
            member.tick(now);
        }
    }

    fn read(&mut self, number: usize, most: usize) {
        let now = self.now;
        for _ in 0..most {
            let Some((from, data)) = self.inboxes[number].pop_front() else {
                return;
            };
            if let Some(member) = &mut self.members[number] {
                member.receive(&name(from), &data, now);
            }
        }
    }

    fn note_deaths(&mut self, number: usize) {
        let Some(member) = &self.members[number] else {
            return;
        };
        for other in 0..self.members.len() {
            if member.view(&name(other)).map(|sight| sight.state) == Some(SwimState::Dead) {
                self.deaths.insert((number, other));
            }
        }
    }

    fn crash(&mut self, number: usize) {
        self.members[number] = None;
        self.inboxes[number].clear();
    }

    fn restart(&mut self, number: usize, life: u64) {
        self.members[number] = Some(Swim::new(identity(number, life), &self.options, life));
        self.introduce(number);
    }

    fn states(&self, of: usize) -> Vec<Option<SwimState>> {
        let others = self.members.iter().enumerate();
        others
            .filter(|(number, _)| *number != of)
            .filter_map(|(_, member)| member.as_ref())
            .map(|member| member.view(&name(of)).map(|sight| sight.state))
            .collect()
    }

    fn all_see(&self, of: usize, state: SwimState) -> bool {
        self.states(of).iter().all(|seen| *seen == Some(state))
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_crashed_member_is_dead_to_all_and_back_after_a_restart() {
    for seed in 0..10 {
        let mut fleet = Fleet::new(5, seed, SwimOptions::default());
        fleet.run(seconds(20));
        assert!(fleet.all_see(3, SwimState::Alive), "seed {seed}");
        fleet.crash(3);
        fleet.run(seconds(15));
        assert!(fleet.all_see(3, SwimState::Dead), "seed {seed}");
        fleet.restart(3, 2);
        fleet.run(seconds(15));
        assert!(fleet.all_see(3, SwimState::Alive), "seed {seed}");
    }
}

#[test]
fn a_member_that_says_goodbye_has_left_and_is_not_dead() {
    let mut fleet = Fleet::new(3, 7, SwimOptions::default());
    fleet.run(seconds(10));
    let now = fleet.now;
    fleet.members[2].as_mut().expect("it runs").leave(now);
    fleet.send_from(2);
    fleet.crash(2);
    fleet.run(seconds(10));
    assert!(fleet.all_see(2, SwimState::Left), "{:?}", fleet.states(2));
    assert!(fleet.deaths.is_empty());
}

/// Returns the deaths that one starved member of five causes.
fn deaths_with_a_starved_member(
    seed: u64,
    guard: bool,
    gap: std::ops::Range<u64>,
) -> BTreeSet<(usize, usize)> {
    let options = SwimOptions {
        guard,
        ..SwimOptions::default()
    };
    let mut fleet = Fleet::new(5, seed, options);
    fleet.run(seconds(5));
    fleet.gap = gap;
    fleet.starved.insert(STARVED, fleet.now);
    fleet.run(seconds(90));
    fleet.deaths
}

/// Counts the deaths, without those of the starved member itself.
fn deaths_of_others(seed: u64, guard: bool) -> usize {
    let deaths = deaths_with_a_starved_member(seed, guard, 4500..9000);
    deaths.iter().filter(|(_, of)| *of != STARVED).count()
}

#[test]
fn a_member_that_runs_every_two_seconds_stays_alive_and_declares_none_dead() {
    for seed in 0..8 {
        let deaths = deaths_with_a_starved_member(seed, true, 1500..2600);
        assert!(deaths.is_empty(), "seed {seed}: {deaths:?}");
    }
}

#[test]
fn a_member_that_hardly_runs_declares_none_dead() {
    for seed in 0..8 {
        assert_eq!(deaths_of_others(seed, true), 0, "seed {seed}");
    }
}

#[test]
fn without_the_guard_a_member_that_hardly_runs_kills_others() {
    let deaths: usize = (0..8).map(|seed| deaths_of_others(seed, false)).sum();
    assert!(
        deaths > 0,
        "the simulation would not notice a missing guard"
    );
}

#[test]
fn a_lossy_network_makes_no_member_dead() {
    for seed in 0..10 {
        let mut fleet = Fleet::new(5, seed, SwimOptions::default());
        fleet.loss = 0.15;
        fleet.run(seconds(120));
        assert!(fleet.deaths.is_empty(), "seed {seed}: {:?}", fleet.deaths);
    }
}

#[test]
fn a_link_that_is_dead_in_one_direction_makes_no_member_dead() {
    for seed in 0..10 {
        let mut fleet = Fleet::new(4, seed, SwimOptions::default());
        fleet.run(seconds(5));
        fleet.cut.insert((0, 1));
        fleet.run(seconds(60));
        assert!(fleet.deaths.is_empty(), "seed {seed}: {:?}", fleet.deaths);
    }
}

#[test]
fn both_sides_of_a_partition_find_each_other_again() {
    for seed in 0..5 {
        let mut fleet = Fleet::new(5, seed, SwimOptions::default());
        fleet.run(seconds(10));
        for one in [0, 1] {
            for other in [2, 3, 4] {
                fleet.cut.insert((one, other));
                fleet.cut.insert((other, one));
            }
        }
        fleet.run(seconds(30));
        let sight = fleet.members[0].as_ref().expect("it runs").view(&name(3));
        assert_eq!(sight.map(|sight| sight.state), Some(SwimState::Dead));
        fleet.cut.clear();
        fleet.run(seconds(60));
        for member in 0..5 {
            assert!(
                fleet.all_see(member, SwimState::Alive),
                "seed {seed}: {member} {:?}",
                fleet.states(member)
            );
        }
    }
}

#[test]
fn the_reporter_of_a_dead_member_is_known() {
    let mut fleet = Fleet::new(3, 1, SwimOptions::default());
    fleet.run(seconds(10));
    fleet.crash(2);
    fleet.run(seconds(15));
    let sayers: BTreeSet<NodeName> = [0, 1]
        .map(|number| {
            let member = fleet.members[number].as_ref().expect("it runs");
            member.view(&name(2)).expect("it is known").said_by.clone()
        })
        .into();
    assert!(
        sayers
            .iter()
            .all(|sayer| *sayer == name(0) || *sayer == name(1))
    );
}

proptest! {
    #[test]
    fn nonsense_from_the_network_changes_nothing(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut member = Swim::new(identity(0, 1), &SwimOptions::default(), 1);
        member.receive(&name(1), &data, Duration::from_secs(1));
        prop_assert_eq!(member.views().count(), 0);
    }
}
