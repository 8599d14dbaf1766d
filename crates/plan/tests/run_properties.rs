//! Random graphs and random events: the invariants.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{Random, after, ended, random, run_id};
use bunraku_plan::run::{
    Action, Event, NodeLimit, OnFailure, RolloutCheck, Run, RunEnding, RunLogEntry, RunOptions,
    RunOutcome, RunWait, StepState,
};
use bunraku_plan::{RunPlan, StepIndex};
use proptest::prelude::*;

fn options(random: &mut Random) -> RunOptions {
    RunOptions {
        batch: random
            .chance(50)
            .then(|| NodeLimit::Count(1 + random.below(5) as u32)),
        canary: if random.chance(30) {
            random.below(4) as u32
        } else {
            0
        },
        max_failures: random
            .chance(30)
            .then(|| NodeLimit::Percent(random.below(50) as u8)),
        on_failure: if random.chance(50) {
            OnFailure::ContinueIndependent
        } else {
            OnFailure::Stop
        },
        by_group: random.chance(25),
        soak_seconds: if random.chance(30) { 20 } else { 0 },
        checks: if random.chance(30) {
            vec![RolloutCheck::Manual; 1 + random.below(2)]
        } else {
            Vec::new()
        },
        check_timeout_seconds: 300,
        batch_by: random.chance(30).then(|| "rack".to_owned()),
        gate_each_batch: random.chance(50),
        max_unavailable: random
            .chance(20)
            .then(|| NodeLimit::Count(1 + random.below(4) as u32)),
        max_drift: random.chance(20).then_some(NodeLimit::Count(2)),
        node_timeout_seconds: random.chance(50).then_some(50),
        total_timeout_seconds: random.chance(10).then_some(500),
        ..RunOptions::default()
    }
}

struct Story {
    run: Run,
    log: Vec<RunLogEntry>,
    clock: i64,
    started: BTreeSet<StepIndex>,
}

impl Story {
    fn record(&mut self, event: Event) {
        let at = after(self.clock);
        let before = self.run.clone();
        let actions = self.run.step(&event, at);
        self.log.push(RunLogEntry { at, event });
        for action in actions {
            if let Action::Start { step, .. } = action {
                assert!(self.started.insert(step), "{step:?} is started twice");
                needs_are_done(before.plan(), &self.run, step);
                gates_and_racks_hold(&self.run, step);
            }
        }
        within_limits(&self.run);
    }
}

/// Spreads the nodes over three racks.
fn with_racks(plan: &RunPlan, options: &RunOptions) -> Arc<RunPlan> {
    let mut plan = plan.clone();
    if options.batch_by.is_some() {
        for (number, step) in plan.steps.iter_mut().enumerate() {
            step.batch = Some(format!("rack {}", number % 3));
        }
    }
    Arc::new(plan)
}

/// Nothing starts at a gate, and only one rack runs at a time.
fn gates_and_racks_hold(run: &Run, step: StepIndex) {
    let waits = |run: &Run| {
        let mut waits = run.waits().into_iter();
        waits.any(|wait| matches!(wait, RunWait::Soak { .. } | RunWait::Check { .. }))
    };
    assert!(!waits(run), "{step:?} started at a gate");
    if run.options().batch_by.is_some() {
        let rack = &run.plan().steps[step.at()].batch;
        let active = run.plan().steps.iter().zip(run.statuses());
        for (other, _) in active.filter(|(_, status)| status.state.is_active()) {
            assert_eq!(other.batch, *rack, "two racks run at a time");
        }
    }
}

fn needs_are_done(plan: &RunPlan, run: &Run, step: StepIndex) {
    for wait in &plan.steps[step.at()].waits_for {
        let state = &run.statuses()[wait.step.at()].state;
        assert_eq!(
            *state,
            StepState::Succeeded,
            "{step:?} started before {:?}",
            wait.step
        );
    }
    if run.options().by_group {
        let group = plan.steps[step.at()].group;
        for (other, status) in plan.steps.iter().zip(run.statuses()) {
            assert!(
                other.group >= group || status.state.is_over(),
                "a barrier is broken"
            );
        }
    }
}

fn within_limits(run: &Run) {
    let active = run
        .statuses()
        .iter()
        .filter(|status| status.state.is_active())
        .count();
    if let Some(NodeLimit::Count(most)) = run.options().batch {
        assert!(active <= most.max(1) as usize, "{active} run at a time");
    }
    if let Some(NodeLimit::Count(most)) = run.options().max_unavailable {
        assert!(active <= most as usize, "{active} are unavailable");
    }
}

/// Executes a run in which the seed determines what happens to each node.
fn story(seed: u64) -> Story {
    let mut dice = Random(seed);
    let count = 1 + dice.below(40);
    let edges = dice.below(count * 3);
    let plan = random(count, edges, &mut dice);
    let options = options(&mut dice);
    let plan = with_racks(&plan, &options);
    let mut story = Story {
        run: Run::new(run_id(), plan, options, &[]),
        log: Vec::new(),
        clock: 0,
        started: BTreeSet::new(),
    };
    story.record(Event::Begun { unfit: Vec::new() });
    for _ in 0..20_000 {
        if story.run.outcome().is_some() {
            return story;
        }
        story.clock += dice.below(2_000) as i64;
        let active: Vec<StepIndex> = (0..)
            .map(StepIndex)
            .zip(story.run.statuses())
            .filter(|(_, status)| status.state.is_active())
            .map(|(step, _)| step)
            .collect();
        let event = fate(&story, &active, &mut dice);
        story.record(event);
    }
    panic!("seed {seed}: the run does not end");
}

fn fate(story: &Story, active: &[StepIndex], dice: &mut Random) -> Event {
    let all = story.run.statuses().len();
    let step = if active.is_empty() || dice.chance(10) {
        // Any step, requested or not: this must not matter.
        StepIndex(dice.below(all + 2) as u32)
    } else {
        active[dice.below(active.len())]
    };
    let ending = match dice.below(12) {
        0 => RunEnding::Failed,
        1 => RunEnding::Interrupted,
        2 => RunEnding::Expired,
        _ => RunEnding::Succeeded,
    };
    match dice.below(20) {
        0 => Event::Away { step },
        1 => Event::Back { step },
        2 if dice.chance(10) => Event::Disabled {
            step,
            reason: "x".to_owned(),
        },
        3 if dice.chance(10) => Event::Refused {
            step,
            reason: "x".to_owned(),
        },
        4 if dice.chance(5) => Event::StopRequested {
            by: "ann".to_owned(),
        },
        5 if dice.chance(5) => Event::CancelRequested {
            by: "ann".to_owned(),
        },
        6..9 => Event::Started { step },
        9..12 => Event::TimePassed,
        12..14 => {
            let (gate, check) = (1 + dice.below(3) as u32, dice.below(2) as u32);
            let by = "ann".to_owned();
            if dice.chance(90) {
                Event::CheckPassed {
                    gate,
                    check,
                    by,
                    message: None,
                }
            } else {
                Event::CheckFailed {
                    gate,
                    check,
                    by,
                    reason: "x".to_owned(),
                }
            }
        }
        _ => ended(step, ending),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_run_never_starts_too_early_never_forgets_a_node_and_ends(seed in any::<u64>()) {
        let story = story(seed);
        for status in story.run.statuses() {
            prop_assert!(status.state.is_over(), "{:?} is forgotten", status);
        }
        let all = story.run.statuses().iter().all(|status| status.state == StepState::Succeeded);
        prop_assert_eq!(all, story.run.outcome() == Some(RunOutcome::Succeeded));
    }

    #[test]
    fn a_log_cut_at_any_entry_continues_to_the_same_end(seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let story = story(seed);
        let run = &story.run;
        let cut = cut.index(story.log.len() + 1);
        let (mut other, outstanding) = Run::recover(
            run.id(), run.plan().clone(), run.options().clone(), &[], story.log[..cut].iter().cloned(),
        );
        // Exactly the steps that are starting are requested again.
        let again: BTreeSet<StepIndex> = outstanding
            .iter()
            .filter_map(|action| match action {
                Action::Start { step, .. } => Some(*step),
                Action::Cancel { .. } | Action::Check { .. } => None,
            })
            .collect();
        for (step, status) in (0..).map(StepIndex).zip(other.statuses()) {
            prop_assert_eq!(again.contains(&step), status.state == StepState::Starting);
        }
        for entry in &story.log[cut..] {
            other.step(&entry.event, entry.at);
        }
        prop_assert_eq!(other.statuses(), run.statuses());
        prop_assert_eq!(other.phase(), run.phase());
    }
}
