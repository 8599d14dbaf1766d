//! Compares the duration of runs with the shortest possible time, and measures the cost of
//! planning and deciding: `cargo bench -p bunraku-plan --bench runs`.
//!
//! Nodes are simulated in virtual time. Each takes between seconds and minutes, and requests
//! and reports travel for some milliseconds. The leader stores events that arrived together
//! in one write before it continues. The lower bound is the longest chain of durations alone,
//! as if messages took no time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bunraku_model::RunId;
use bunraku_plan::run::{Action, Event, Run, RunEnding, RunOptions, RunOutcome};
use bunraku_plan::{Application, Component, LocatedName, PlanOptions, RunPlan, Site, StepIndex};
use jiff::Timestamp;

/// Duration of one durable write of the leader, in milliseconds.
const WRITE: u64 = 5;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64: spreads well enough, and is the same everywhere.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// Creates components on separate nodes, each after some earlier ones.
fn site(nodes: u64, edges: u64, dice: &mut Dice) -> Site {
    let mut components: Vec<Component> = (0..nodes)
        .map(|number| Component {
            name: format!("component-{number}"),
            nodes: vec![LocatedName::new(format!("node-{number}.example.com"))],
            ..Component::default()
        })
        .collect();
    for _ in 0..edges {
        let behind = 1 + dice.below(nodes - 1);
        let before = dice.below(behind);
        let wanted = LocatedName::new(format!("component-{before}"));
        components[behind as usize].waits_for.push(wanted);
    }
    Site {
        environment: "production".to_owned(),
        applications: vec![Application {
            name: "site".to_owned(),
            components,
        }],
        ..Site::default()
    }
}

/// Returns durations: most nodes take a minute, some take long.
fn durations(count: usize, dice: &mut Dice) -> Vec<u64> {
    (0..count)
        .map(|_| 5_000 + dice.below(60_000) + if dice.below(20) == 0 { 240_000 } else { 0 })
        .collect()
}

/// Returns the longest chain of durations.
fn lower_bound(plan: &RunPlan, durations: &[u64]) -> u64 {
    let mut ends = vec![0u64; plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        let ready = step.waits_for.iter().map(|wait| ends[wait.step.at()]).max();
        ends[at] = ready.unwrap_or(0) + durations[at];
    }
    ends.into_iter().max().unwrap_or(0)
}

/// Returns this thread's processor time in nanoseconds, because others share the machine.
fn processor_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

struct Carried {
    makespan: u64,
    /// Time spent on deciding, in nanoseconds.
    processor: u64,
}

/// Executes a plan in virtual time.
fn execute(plan: &Arc<RunPlan>, durations: &[u64], options: RunOptions, seed: u64) -> Carried {
    let mut dice = Dice(seed);
    let mut run = Run::new(RunId(uuid::Uuid::nil()), plan.clone(), options, &[]);
    let at = |clock: u64| Timestamp::from_millisecond(clock as i64).expect("a time");
    // Time of arrival at the leader, the step, and a flag for the end of the step.
    let mut coming: BinaryHeap<Reverse<(u64, u32, bool)>> = BinaryHeap::new();
    let (mut clock, mut processor) = (0u64, 0u64);
    let mut events = vec![Event::Begun { unfit: Vec::new() }];
    loop {
        clock += WRITE;
        let before = processor_time();
        let mut actions = Vec::new();
        for event in events.drain(..) {
            actions.extend(run.step(&event, at(clock)));
        }
        processor += processor_time() - before;
        for action in actions {
            if let Action::Start { step, .. } = action {
                let started = clock + 10 + dice.below(90);
                let ended = started + durations[step.at()];
                coming.push(Reverse((started + 10 + dice.below(90), step.0, false)));
                coming.push(Reverse((ended + 10 + dice.below(90), step.0, true)));
            }
        }
        let Some(Reverse((next, ..))) = coming.peek() else {
            break;
        };
        clock = clock.max(*next);
        while let Some(Reverse((time, step, ended))) = coming.peek().copied() {
            if time > clock {
                break;
            }
            coming.pop();
            let step = StepIndex(step);
            events.push(if ended {
                Event::Ended {
                    step,
                    ending: RunEnding::Succeeded,
                    changed: 1,
                    failed: 0,
                    message: None,
                    failures: Vec::new(),
                    drifted: 0,
                }
            } else {
                Event::Started { step }
            });
        }
    }
    assert_eq!(run.outcome(), Some(RunOutcome::Succeeded), "all succeed");
    Carried {
        makespan: clock,
        processor,
    }
}

fn main() {
    println!(
        "| nodes | edges | plan, ms | lower bound, s | run, s | of the bound | by group, s | of the bound | µs of CPU per node run |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (nodes, edges) in [(100, 300), (1_000, 5_000), (10_000, 50_000)] {
        let mut dice = Dice(0x5eed ^ nodes);
        let site = site(nodes, edges, &mut dice);
        let (mut planning, mut plan) = (f64::MAX, None);
        for _ in 0..5 {
            let before = processor_time();
            plan = Some(bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan"));
            planning = planning.min((processor_time() - before) as f64 / 1e6);
        }
        let plan = Arc::new(plan.expect("planned"));
        let durations = durations(plan.steps.len(), &mut dice);
        let bound = lower_bound(&plan, &durations);
        let free = execute(&plan, &durations, RunOptions::default(), nodes);
        let by_group = RunOptions {
            by_group: true,
            ..RunOptions::default()
        };
        let barriers = execute(&plan, &durations, by_group, nodes);
        let ratio = |makespan: u64| makespan as f64 / bound as f64;
        println!(
            "| {nodes} | {edges} | {planning:.1} | {:.1} | {:.1} | {:.3} | {:.1} | {:.2} | {:.1} |",
            bound as f64 / 1e3,
            free.makespan as f64 / 1e3,
            ratio(free.makespan),
            barriers.makespan as f64 / 1e3,
            ratio(barriers.makespan),
            free.processor as f64 / 1e3 / nodes as f64,
        );
        assert!(ratio(free.makespan) <= 1.05, "the target is 1.05");
        assert!(
            free.makespan <= barriers.makespan,
            "barriers cannot be faster"
        );
    }
}
