//! Tests the decision about datastores against a simulated cluster that checks
//! every action. The work is interrupted at every step and continued by another
//! server.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_cluster::failover::{
    Action, Datastore, DatastorePlan, FailoverInput, Limits, Liveness, NextStep, Programs, Server,
    WaitReason, next, target,
};
use bunraku_model::NodeName;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

fn name(number: usize) -> NodeName {
    NodeName::new(format!("server-{number}")).expect("a valid name")
}

fn peer_url(number: usize) -> String {
    format!("https://10.0.0.{number}:8153")
}

struct Machine {
    up: bool,
    since: Timestamp,
    draining: bool,
    ordered: Option<u64>,
    /// The time since when its data is damaged.
    broken: Option<Timestamp>,
}

struct EtcdEntry {
    server: usize,
    learner: bool,
}

/// A model of etcd and the servers, with the actions that were done to them.
struct World {
    now: Timestamp,
    wanted: usize,
    servers: Vec<Machine>,
    members: BTreeMap<u64, EtcdEntry>,
    next_id: u64,
    plan: DatastorePlan,
    limits: Limits,
    removals: usize,
}

impl World {
    fn new(servers: usize, datastores: usize, wanted: usize) -> Self {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let ordered = |number| (number < datastores).then_some(number as u64 + 1);
        Self {
            now,
            wanted,
            servers: (0..servers)
                .map(|number| Machine {
                    up: true,
                    since: now,
                    draining: false,
                    ordered: ordered(number),
                    broken: None,
                })
                .collect(),
            members: (0..datastores)
                .map(|server| {
                    let learner = false;
                    (server as u64 + 1, EtcdEntry { server, learner })
                })
                .collect(),
            next_id: 100,
            plan: DatastorePlan::default(),
            limits: Limits::default(),
            removals: 0,
        }
    }

    fn healthy(&self, id: u64) -> bool {
        let entry = &self.members[&id];
        let server = &self.servers[entry.server];
        server.up && server.ordered == Some(id) && server.broken.is_none()
    }

    fn healthy_voters(&self) -> usize {
        let voters = self.members.iter().filter(|(_, entry)| !entry.learner);
        voters.filter(|(id, _)| self.healthy(**id)).count()
    }

    fn voters(&self) -> usize {
        self.members.values().filter(|entry| !entry.learner).count()
    }

    fn has_majority(&self) -> bool {
        self.healthy_voters() > self.voters() / 2
    }

    fn input(&self) -> FailoverInput {
        let servers = self
            .servers
            .iter()
            .enumerate()
            .map(|(number, server)| Server {
                name: name(number),
                state: if server.up {
                    Liveness::Alive
                } else {
                    Liveness::Dead
                },
                since: server.since,
                eligible: true,
                draining: server.draining,
                peer_url: peer_url(number),
                ordered: server.ordered,
                restart: 0,
                programs: Programs::default(),
            });
        let datastores = self.members.iter().map(|(id, entry)| Datastore {
            id: *id,
            peer_url: peer_url(entry.server),
            learner: entry.learner,
            healthy: self.healthy(*id),
            failing_since: self.servers[entry.server].broken,
        });
        FailoverInput {
            wanted: self.wanted,
            servers: servers.collect(),
            datastores: datastores.collect(),
        }
    }

    fn number(&self, server: &NodeName) -> usize {
        (0..self.servers.len())
            .find(|number| name(*number) == *server)
            .expect("a known server")
    }

    /// Performs an action, and asserts the invariants.
    fn perform(&mut self, action: &Action) {
        assert!(self.has_majority(), "{action:?} without a majority");
        match action {
            Action::Remove { id } => {
                if let Some(entry) = self.members.remove(id) {
                    self.removals += usize::from(!entry.learner);
                }
                assert!(self.has_majority(), "removing {id} took the majority away");
            }
            Action::AddLearner { server } => {
                let server = self.number(server);
                if self.healthy_voters() < self.voters() {
                    // Like etcd: it has not been connected to all peers for a while.
                    return;
                }
                let learners = self.members.values().filter(|entry| entry.learner).count();
                assert_eq!(learners, 0, "two learners at once");
                assert!(self.members.values().all(|entry| entry.server != server));
                let learner = true;
                self.members
                    .insert(self.next_id, EtcdEntry { server, learner });
                self.next_id += 1;
            }
            Action::Start { server, id } => {
                let number = self.number(server);
                self.servers[number].ordered = Some(*id);
            }
            Action::Retire { server } => {
                let number = self.number(server);
                let ordered = self.servers[number].ordered.expect("it was told to run");
                assert!(!self.members.contains_key(&ordered), "retired while needed");
                self.servers[number].ordered = None;
                self.servers[number].broken = None;
            }
            Action::Restart { .. } => unreachable!("no other etcd is installed here"),
            Action::Promote { id } => {
                let healthy = self.healthy(*id);
                let entry = self.members.get_mut(id).expect("on the list");
                assert!(healthy, "etcd refuses a learner that has not caught up");
                entry.learner = false;
                assert!(self.has_majority(), "promoting {id} took the majority away");
            }
        }
    }

    fn step(&mut self, performed: bool) -> NextStep {
        let next = next(&self.plan, &self.input(), &self.limits, self.now);
        match &next {
            // Interrupted before it was done: nothing happened, another server looks again.
            _ if !performed => {}
            NextStep::Store(plan) => self.plan = plan.clone(),
            NextStep::Act(action) => self.perform(action),
            NextStep::Wait(_) => {}
        }
        next
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn set(&mut self, number: usize, up: bool) {
        if self.servers[number].up != up {
            self.servers[number].up = up;
            self.servers[number].since = self.now;
        }
    }

    /// Runs until nothing is left to do.
    fn settle(&mut self) -> WaitReason {
        let mut last = WaitReason::Content;
        for _ in 0..200 {
            match self.step(true) {
                NextStep::Wait(WaitReason::Content) => return WaitReason::Content,
                NextStep::Wait(waiting) => {
                    last = waiting;
                    self.pass(11);
                }
                _ => {}
            }
        }
        last
    }

    fn datastore_servers(&self) -> BTreeSet<usize> {
        let voters = self.members.values().filter(|entry| !entry.learner);
        voters.map(|entry| entry.server).collect()
    }
}

#[test]
fn a_dead_datastore_is_replaced_after_the_grace_time_and_not_before() {
    let mut world = World::new(5, 3, 3);
    world.set(1, false);
    assert_eq!(world.step(true), NextStep::Wait(WaitReason::Grace(name(1))));
    world.pass(61);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.datastore_servers(), [0, 2, 3].into());
    assert_eq!(world.servers[1].ordered, None, "it never runs its old data");
}

#[test]
fn a_reboot_within_the_grace_time_changes_nothing() {
    let mut world = World::new(5, 3, 3);
    world.set(1, false);
    world.pass(30);
    assert_eq!(world.step(true), NextStep::Wait(WaitReason::Grace(name(1))));
    world.set(1, true);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.removals, 0);
}

#[test]
fn one_that_returns_before_it_was_removed_stays() {
    let mut world = World::new(5, 3, 3);
    world.set(1, false);
    world.pass(61);
    assert!(matches!(world.step(true), NextStep::Store(_)));
    world.set(1, true);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.removals, 0);
}

#[test]
fn no_datastore_is_removed_without_a_replacement() {
    let mut world = World::new(3, 3, 3);
    world.set(1, false);
    world.pass(61);
    assert_eq!(
        world.step(true),
        NextStep::Wait(WaitReason::NoReplacement(name(1)))
    );
    assert_eq!(world.removals, 0);
}

#[test]
fn without_a_majority_nothing_is_done() {
    let mut world = World::new(5, 3, 3);
    world.set(0, false);
    world.set(1, false);
    world.pass(600);
    assert_eq!(world.step(true), NextStep::Wait(WaitReason::NoMajority));
}

#[test]
fn a_voter_is_never_told_to_remove_its_data() {
    // After a recovery the list is new, and the documents in the store are old.
    let mut seen = World::new(3, 1, 3).input();
    seen.servers[0].ordered = Some(77);
    let now = Timestamp::from_second(1_800_000_000).expect("a time");
    assert_eq!(seen.to_retire(), None);
    let next = next(&DatastorePlan::default(), &seen, &Limits::default(), now);
    assert!(
        !matches!(next, NextStep::Act(Action::Retire { .. })),
        "{next:?}"
    );
    seen.datastores[0].peer_url = peer_url(9);
    assert_eq!(seen.to_retire().map(|server| &server.name), Some(&name(0)));
}

#[test]
fn two_of_five_that_die_together_are_replaced_one_after_the_other() {
    let mut world = World::new(7, 5, 5);
    world.set(0, false);
    world.set(1, false);
    world.pass(61);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.datastore_servers(), [2, 3, 4, 5, 6].into());
}

#[test]
fn a_second_one_that_is_lost_in_the_middle_of_a_change_is_replaced_before_it_ends() {
    // No server is left to take a place: both start over where they are.
    let mut world = World::new(5, 5, 5);
    world.set(2, false);
    world.pass(30);
    world.servers[0].broken = Some(world.now);
    world.pass(35);
    assert_eq!(
        world.step(true),
        NextStep::Wait(WaitReason::NoReplacement(name(2)))
    );
    world.set(2, true);
    world.servers[2].broken = Some(world.now - SignedDuration::from_secs(65));
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.datastore_servers(), [0, 1, 2, 3, 4].into());
    assert_eq!(world.removals, 2);
}

#[test]
fn a_drained_server_keeps_its_role_until_another_has_it() {
    let mut world = World::new(4, 3, 3);
    world.servers[0].draining = true;
    let mut fewest = usize::MAX;
    for _ in 0..20 {
        world.step(true);
        fewest = fewest.min(world.healthy_voters());
    }
    assert_eq!(world.datastore_servers(), [1, 2, 3].into());
    assert_eq!(fewest, 3);
}

#[test]
fn one_server_grows_to_three_when_two_more_are_there_and_not_to_two() {
    let mut world = World::new(2, 1, 3);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.voters(), 1);
    let mut world = World::new(3, 1, 3);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.voters(), 3);
}

#[test]
fn too_many_changes_in_an_hour_stop_by_themselves() {
    let mut world = World::new(5, 3, 3);
    let mut random = StdRng::seed_from_u64(5);
    let mut stopped = false;
    for _ in 0..40 {
        let role: Vec<_> = world.datastore_servers().into_iter().collect();
        let victim = *role.choose(&mut random).expect("there are datastores");
        world.set(victim, false);
        world.pass(61);
        stopped |= matches!(world.settle(), WaitReason::TooMany(12));
        world.set(victim, true);
        world.settle();
    }
    assert!(stopped);
}

#[test]
fn a_datastore_that_fails_on_a_living_server_is_replaced_too() {
    let world = World::new(4, 3, 3);
    let mut seen = world.input();
    seen.datastores[1].healthy = false;
    seen.datastores[1].failing_since = Some(world.now - SignedDuration::from_secs(90));
    let NextStep::Store(plan) = next(&world.plan, &seen, &world.limits, world.now) else {
        panic!("nothing was decided");
    };
    assert_eq!(plan.current.expect("a change").into, name(3));
}

#[test]
fn a_broken_datastore_is_rebuilt_in_place_if_no_other_member_is_eligible() {
    let mut world = World::new(3, 3, 3);
    world.servers[1].broken = Some(world.now);
    assert_eq!(world.step(true), NextStep::Wait(WaitReason::Grace(name(1))));
    world.pass(61);
    assert_eq!(world.settle(), WaitReason::Content);
    assert_eq!(world.datastore_servers(), [0, 1, 2].into());
    assert_eq!(world.removals, 1);
    assert!(world.servers[1].ordered > Some(99), "a new one");
}

#[test]
fn an_even_number_is_never_aimed_at() {
    let aims: Vec<usize> = (0..8).map(|eligible| target(5, eligible)).collect();
    assert_eq!(aims, [1, 1, 1, 3, 3, 5, 5, 5]);
    assert_eq!(target(4, 9), 3);
}

proptest! {
    /// Servers come and go, operators drain, and every step may be interrupted
    /// before it is done. In every case, no action takes the majority away
    /// (`World::perform` asserts that). After the faults end, the cluster is
    /// complete again.
    #[test]
    fn whatever_happens_no_action_takes_the_majority_away(
        seed in any::<u64>(), servers in 3usize..8, wanted in prop::sample::select(vec![1usize, 3, 5]),
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new(servers, target(wanted, servers), wanted);
        for _ in 0..300 {
            let number = random.random_range(0..servers);
            match random.random_range(0..12) {
                // Never more dead voters than etcd itself survives.
                0 => {
                    world.set(number, false);
                    if !world.has_majority() { world.set(number, true); }
                }
                1 | 2 => world.set(number, true),
                3 => world.servers[number].draining = random.random_bool(0.3),
                4 => world.pass(random.random_range(0..90)),
                5 => {
                    let keeps_data = world.servers[number].ordered.is_some();
                    world.servers[number].broken = keeps_data.then_some(world.now);
                    if !world.has_majority() { world.servers[number].broken = None; }
                }
                _ => {
                    let performed = random.random_bool(0.7);
                    world.step(performed);
                }
            }
        }
        for number in 0..servers {
            world.set(number, true);
            world.servers[number].draining = false;
        }
        world.pass(4000);
        prop_assert_eq!(world.settle(), WaitReason::Content);
        prop_assert!(world.voters() >= target(wanted, servers));
        prop_assert_eq!(world.healthy_voters(), world.voters());
        let roles = world.servers.iter().filter(|server| server.ordered.is_some()).count();
        prop_assert_eq!(roles, world.voters());
    }

    /// Interrupts one failover before each of its steps in turn: the next server to
    /// look ends in the same state.
    #[test]
    fn a_failover_that_is_cut_off_at_any_step_ends_the_same(cut in 0usize..12) {
        let mut world = World::new(5, 3, 3);
        world.set(2, false);
        world.pass(61);
        for step in 0..12 {
            world.step(step != cut);
        }
        prop_assert_eq!(world.settle(), WaitReason::Content);
        prop_assert_eq!(world.datastore_servers(), BTreeSet::from([0, 1, 3]));
        prop_assert_eq!(world.removals, 1);
    }
}
