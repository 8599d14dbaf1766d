//! Simulates a thousand nodes, a network that loses, duplicates and reorders messages, and
//! servers that die in the middle. Nothing runs twice, and nothing is forgotten.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::support::{Random, after, ended, random, run_id};
use bunraku_model::NodeRunId;
use bunraku_plan::run::{
    Action, Event, OnFailure, Run, RunEnding, RunLogEntry, RunOptions, RunOutcome, StepState,
};
use bunraku_plan::{RunPlan, StepIndex};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    /// To a node: it may arrive twice, or late.
    Start(StepIndex, NodeRunId),
    Cancel(StepIndex, NodeRunId),
    /// Inside a node: its work is done.
    WorkDone(StepIndex),
    /// From a node's spool: sent until it is stored.
    Report(StepIndex, StepReport),
    NodeDies(StepIndex),
    NodeReturns(StepIndex),
    PresenceSees(StepIndex, bool),
    LeaderDies,
    Tick,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StepReport {
    Started,
    Succeeded,
    Failed,
    Cancelled,
    Interrupted,
}

#[derive(Default, Clone)]
struct Node {
    /// The ids that it has ever executed, so that it recognizes a second request.
    carried_out: Vec<NodeRunId>,
    working: bool,
    dead: bool,
    /// `true` if it died in the middle. It reports that when it returns.
    interrupted: bool,
    will_fail: bool,
}

/// A deliberate bug that the checks have to find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// Nodes do not recognize a repeated id.
    ForgetfulNodes,
    /// Actions are performed before their event is stored.
    ActsBeforeItStores,
    /// A new leader does not repeat requests that may not have been sent.
    TakesOverWithoutAsking,
}

struct World {
    planted: Option<Planted>,
    plan: Arc<RunPlan>,
    options: RunOptions,
    dice: Random,
    clock: i64,
    queue: BinaryHeap<Reverse<(i64, u64, Message)>>,
    number: u64,
    nodes: Vec<Node>,
    log: Vec<RunLogEntry>,
    run: Run,
    leaders: usize,
}

impl World {
    fn new(seed: u64, count: usize, edges: usize, options: RunOptions) -> Self {
        let mut dice = Random(seed);
        let plan = random(count, edges, &mut dice);
        let run = Run::new(run_id(), plan.clone(), options.clone(), &[]);
        Self {
            planted: None,
            nodes: vec![Node::default(); count],
            plan,
            options,
            dice,
            clock: 0,
            queue: BinaryHeap::new(),
            number: 0,
            log: Vec::new(),
            run,
            leaders: 1,
        }
    }

    fn later(&mut self, milliseconds: usize, message: Message) {
        self.number += 1;
        let at = self.clock + milliseconds as i64;
        self.queue.push(Reverse((at, self.number, message)));
    }

    /// Sends a message over the network: late, out of order, sometimes twice.
    fn send(&mut self, message: Message) {
        let mut delay = 1 + self.dice.below(300);
        // Lost and sent again later, because commands and spools wait for an answer.
        while self.dice.chance(10) {
            delay += 1_000;
        }
        if self.dice.chance(10) {
            let more = self.dice.below(5_000);
            self.later(delay + more, message.clone());
        }
        self.later(delay, message);
    }

    /// Stores the event, then performs its actions, unless the server dies in between.
    fn append(&mut self, event: Event) {
        let at = after(self.clock);
        let actions = self.run.step(&event, at);
        self.log.push(RunLogEntry { at, event });
        if self.dice.chance(2) {
            if self.planted == Some(Planted::ActsBeforeItStores) {
                self.log.pop();
                for action in actions {
                    self.perform(action);
                }
            }
            self.leader_dies();
            return;
        }
        for action in actions {
            self.perform(action);
        }
        self.set_alarm();
    }

    fn set_alarm(&mut self) {
        if let Some(due) = self.run.next_deadline() {
            let wait = due.duration_since(after(self.clock)).as_millis().max(1);
            self.later(wait as usize, Message::Tick);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start { step, node_run } => self.send(Message::Start(step, node_run)),
            Action::Check { .. } => {}
            Action::Cancel { step, node_run, .. } => self.send(Message::Cancel(step, node_run)),
        }
    }

    /// Another server reads the log and continues.
    fn leader_dies(&mut self) {
        self.leaders += 1;
        let (run, outstanding) = Run::recover(
            self.run.id(),
            self.plan.clone(),
            self.options.clone(),
            &[],
            self.log.iter().cloned(),
        );
        assert_eq!(
            run.statuses(),
            self.run.statuses(),
            "the log tells another story"
        );
        self.run = run;
        if self.planted == Some(Planted::TakesOverWithoutAsking) {
            return self.set_alarm();
        }
        for action in outstanding {
            self.perform(action);
        }
        self.set_alarm();
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start(step, id) => self.node_gets(step, id),
            Message::Cancel(step, _) => {
                let node = &mut self.nodes[step.at()];
                if node.working && !node.dead {
                    node.working = false;
                    self.send(Message::Report(step, StepReport::Cancelled));
                }
            }
            Message::WorkDone(step) => {
                let node = &mut self.nodes[step.at()];
                if node.working && !node.dead {
                    node.working = false;
                    let report = if node.will_fail {
                        StepReport::Failed
                    } else {
                        StepReport::Succeeded
                    };
                    self.send(Message::Report(step, report));
                }
            }
            Message::Report(step, report) => {
                self.append(match report {
                    StepReport::Started => Event::Started { step },
                    StepReport::Succeeded => ended(step, RunEnding::Succeeded),
                    StepReport::Failed => ended(step, RunEnding::Failed),
                    StepReport::Cancelled => ended(step, RunEnding::Cancelled),
                    StepReport::Interrupted => ended(step, RunEnding::Interrupted),
                });
            }
            Message::NodeDies(step) => {
                let node = &mut self.nodes[step.at()];
                node.dead = true;
                node.interrupted |= std::mem::take(&mut node.working);
                self.later(500, Message::PresenceSees(step, false));
            }
            Message::NodeReturns(step) => {
                self.nodes[step.at()].dead = false;
                if std::mem::take(&mut self.nodes[step.at()].interrupted) {
                    self.send(Message::Report(step, StepReport::Interrupted));
                }
                self.later(500, Message::PresenceSees(step, true));
            }
            Message::PresenceSees(step, there) => self.append(if there {
                Event::Back { step }
            } else {
                Event::Away { step }
            }),
            Message::LeaderDies => self.leader_dies(),
            Message::Tick => {
                let due = self
                    .run
                    .next_deadline()
                    .is_some_and(|due| due <= after(self.clock));
                if due {
                    self.append(Event::TimePassed);
                }
            }
        }
    }

    fn node_gets(&mut self, step: StepIndex, id: NodeRunId) {
        if self.nodes[step.at()].dead {
            // The command waits for the node.
            if self.run.outcome().is_none() {
                self.later(2_000, Message::Start(step, id));
            }
            return;
        }
        let forgets = self.planted == Some(Planted::ForgetfulNodes);
        if self.nodes[step.at()].carried_out.contains(&id) && !forgets {
            return;
        }
        assert!(
            !self.nodes[step.at()].carried_out.contains(&id),
            "a node runs twice"
        );
        // Whatever the network did, the dependencies must be done.
        for wait in self.plan.steps[step.at()].waits_for.clone() {
            let before = &self.nodes[wait.step.at()];
            assert!(
                !before.carried_out.is_empty() && !before.working,
                "{step:?} runs too early"
            );
        }
        let node = &mut self.nodes[step.at()];
        node.carried_out.push(id);
        node.working = true;
        let duration = 200 + self.dice.below(20_000);
        self.send(Message::Report(step, StepReport::Started));
        self.later(duration, Message::WorkDone(step));
    }

    fn run_to_end(&mut self) {
        self.append(Event::Begun { unfit: Vec::new() });
        while let Some(Reverse((at, _, message))) = self.queue.pop() {
            self.clock = at;
            self.handle(message);
            assert!(self.clock < 100_000_000, "the run does not end");
        }
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(0x5eed);
    println!("seed {seed} (set SEED to choose)");
    seed
}

/// Simulates losses and leader changes with nodes that behave well: all run once, and
/// succeed.
fn run_and_check(count: usize, planted: Option<Planted>) {
    let mut world = World::new(seed(), count, count * 3, RunOptions::default());
    world.planted = planted;
    for death in 0..20 {
        world.later(1_000 + death * 3_000, Message::LeaderDies);
    }
    world.run_to_end();
    for status in world.run.statuses() {
        assert!(status.state.is_over(), "a node is forgotten: {status:?}");
    }
    for node in &world.nodes {
        assert!(node.carried_out.len() < 2, "a node runs twice");
    }
    assert_eq!(
        world.run.outcome(),
        Some(RunOutcome::Succeeded),
        "a node never ran"
    );
    assert!(world.leaders > 20, "{} leaders", world.leaders);
}

#[test]
fn a_thousand_nodes_succeed_through_losses_and_leader_changes() {
    run_and_check(1_000, None);
}

#[test]
#[should_panic(expected = "a node runs twice")]
fn the_checks_find_nodes_that_do_not_know_an_id_again() {
    run_and_check(300, Some(Planted::ForgetfulNodes));
}

#[test]
#[should_panic(expected = "the log tells another story")]
fn the_checks_find_a_leader_that_acts_before_it_stores() {
    run_and_check(300, Some(Planted::ActsBeforeItStores));
}

#[test]
#[should_panic(expected = "a node never ran")]
fn the_checks_find_a_takeover_that_forgets_what_was_decided() {
    run_and_check(300, Some(Planted::TakesOverWithoutAsking));
}

#[test]
fn nodes_that_fail_die_and_return_are_distinguished() {
    let options = RunOptions {
        on_failure: OnFailure::ContinueIndependent,
        node_timeout_seconds: Some(120),
        ..RunOptions::default()
    };
    let mut world = World::new(seed() ^ 1, 1_000, 1_500, options);
    for number in 0..1_000u32 {
        let step = StepIndex(number);
        match number % 10 {
            0 => world.nodes[step.at()].will_fail = true,
            // Gone permanently while the run is in progress.
            1 => world.later(100, Message::NodeDies(step)),
            // Away for a moment before it is asked.
            2 => {
                world.later(50, Message::NodeDies(step));
                world.later(150, Message::NodeReturns(step));
            }
            _ => {}
        }
    }
    for death in 0..10 {
        world.later(2_000 + death * 9_000, Message::LeaderDies);
    }
    world.run_to_end();
    assert_eq!(world.run.outcome(), Some(RunOutcome::Failed));
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, status) in world.run.statuses().iter().enumerate() {
        *words.entry(status.state.name()).or_default() += 1;
        let node = &world.nodes[at];
        match &status.state {
            StepState::Succeeded => assert!(!node.will_fail && !node.carried_out.is_empty()),
            StepState::Failed => assert!(node.will_fail),
            StepState::Skipped { reason } => {
                assert!(node.carried_out.is_empty(), "skipped, and ran");
                assert!(reason.starts_with("waits for "), "{reason}");
            }
            StepState::Lost => assert!(matches!(at % 10, 1 | 2)),
            StepState::NeverStarted => assert_eq!(at % 10, 1),
            other => panic!("{at} is {other:?}"),
        }
        assert!(node.carried_out.len() <= 1);
    }
    println!("{words:?}");
    for word in ["succeeded", "failed", "skipped"] {
        assert!(words[word] > 0, "{words:?}");
    }
    assert!(
        words.contains_key("lost") || words.contains_key("never started"),
        "{words:?}"
    );
}
