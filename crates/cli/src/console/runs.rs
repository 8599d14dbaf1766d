//! The pages of all ordered runs and of one run.

use bunraku_console::{ReactionLine, RunLine, RunPage, RunsPage, Section, StepLine, Tone};
use bunraku_model::RunId;
use bunraku_plan::StepIndex;
use bunraku_plan::run::{
    Run, RunDetail, RunOutcome, RunPhase, RunRecord, RunSummary, StepState, timeline_svg,
};
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use bunraku_wire::endpoints::{Endpoint, ListRuns, ListTriggerEvents, ShowRun, TriggerEventsQuery};
use jiff::Timestamp;

use super::page::{PageError, Source};
use crate::output::ago;
use crate::run_follow;
use crate::run_view::{list_state, mark, phase, short, step_reason, wait_text};
use crate::trigger_view::describe_event;

/// The maximum number of runs on one page. More would not be useful.
const MOST_RUNS: usize = 200;
const MOST_STEPS: usize = 500;
const MOST_REACTIONS: usize = 20;

pub(super) async fn all(source: &Source) -> Result<RunsPage, PageError> {
    let newest = TriggerEventsQuery {
        trigger: None,
        most: Some(1_000),
    };
    let (servers, runs, events): (_, Vec<RunSummary>, Vec<TriggerEvent>) = tokio::try_join!(
        source.servers(),
        source.call(ListRuns),
        source.call(ListTriggerEvents.with_query((), &newest)),
    )?;
    Ok(RunsPage {
        frame: source.frame("Runs", Section::Runs, &servers),
        runs: lines(&runs, MOST_RUNS),
        reactions: reactions(&events),
    })
}

/// Returns the newest entries that reactors caused.
fn reactions(events: &[TriggerEvent]) -> Vec<ReactionLine> {
    let now = Timestamp::now();
    let of_reactors = |event: &&TriggerEvent| {
        let by = event.what.by();
        by.is_some_and(|by| by.starts_with("reactor "))
    };
    let lines = events.iter().filter(of_reactors).take(MOST_REACTIONS);
    let line = |event: &TriggerEvent| ReactionLine {
        when: format!("{} ago", ago(event.at, now)),
        trigger: event.trigger.to_string(),
        tone: match &event.what {
            TriggerNews::Fired { .. } => Tone::Good,
            TriggerNews::RunStarted { .. } => Tone::Busy,
            TriggerNews::RunEnded { outcome, .. } => ended(*outcome),
            _ => Tone::Bad,
        },
        text: describe_event(&event.what),
    };
    lines.map(line).collect()
}

pub(super) fn lines(runs: &[RunSummary], most: usize) -> Vec<RunLine> {
    let now = Timestamp::now();
    let lines = runs.iter().take(most).map(|run| RunLine {
        state: list_state(run, now),
        tone: match &run.end {
            Some(end) => ended(end.outcome),
            None if is_scheduled(run, now) => Tone::Quiet,
            None => Tone::Busy,
        },
        ..line(&run.record, now)
    });
    lines.collect()
}

/// Returns whether a run starts later.
pub(super) fn is_scheduled(run: &RunSummary, now: Timestamp) -> bool {
    run.end.is_none() && run.record.due.not_before.is_some_and(|due| due > now)
}

fn line(record: &RunRecord, now: Timestamp) -> RunLine {
    RunLine {
        id: record.id.to_string(),
        short: short(record.id),
        environment: record.environment.clone(),
        nodes: record.nodes,
        state: String::new(),
        tone: Tone::Quiet,
        asked: format!("{} ago", ago(record.created, now)),
        by: record.by.clone(),
        reason: record.reason.clone().unwrap_or_default(),
    }
}

fn ended(outcome: RunOutcome) -> Tone {
    match outcome {
        RunOutcome::Succeeded => Tone::Good,
        RunOutcome::Failed => Tone::Bad,
        RunOutcome::Cancelled | RunOutcome::Expired | RunOutcome::Refused => Tone::Warn,
    }
}

async fn fetch(source: &Source, run: &str) -> Result<(RunRecord, Run), PageError> {
    let run: RunId = run
        .parse()
        .map_err(|_| PageError::not_found("not the id of a run"))?;
    let detail: RunDetail = source.call(ShowRun.at(&run.to_string())).await?;
    Ok(run_follow::state_of(detail))
}

pub(super) async fn one(source: &Source, run: &str) -> Result<RunPage, PageError> {
    let (servers, (record, run)) = tokio::try_join!(source.servers(), fetch(source, run))?;
    let (now, tally) = (Timestamp::now(), run.tally());
    let tone = match run.phase() {
        RunPhase::Queued => Tone::Quiet,
        RunPhase::Running => Tone::Busy,
        RunPhase::Stopping { .. } | RunPhase::Cancelling { .. } => Tone::Warn,
        RunPhase::Ended { outcome } => ended(*outcome),
    };
    let mut steps: Vec<StepIndex> = (0..run.statuses().len()).map(index).collect();
    steps.sort_by_key(|step| (place(&run.statuses()[step.at()].state), *step));
    Ok(RunPage {
        frame: source.frame_below(&short(record.id), Section::Runs, &servers),
        run: RunLine {
            state: phase(&record, &run),
            tone,
            ..line(&record, now)
        },
        waits: (run.waits().iter())
            .map(|wait| wait_text(&run, wait))
            .collect(),
        groups: run.plan().groups.len(),
        done: percent(tally.finished(), tally.all()),
        timeline: run.begun().is_some(),
        more: steps.len().saturating_sub(MOST_STEPS),
        steps: (steps.into_iter().take(MOST_STEPS))
            .map(|step| step_line(&run, step))
            .collect(),
    })
}

fn index(number: usize) -> StepIndex {
    StepIndex(u32::try_from(number).unwrap_or(u32::MAX))
}

fn percent(part: usize, whole: usize) -> u8 {
    match whole {
        0 => 100,
        _ => u8::try_from(part * 100 / whole).unwrap_or(100),
    }
}

/// Returns the sort position: failed steps first, then running ones, then the rest.
fn place(state: &StepState) -> u8 {
    match state {
        StepState::Starting | StepState::Running => 1,
        StepState::Waiting => 2,
        StepState::Succeeded => 3,
        StepState::Skipped { .. } | StepState::Cancelled => 4,
        _ => 0,
    }
}

fn step_line(run: &Run, step: StepIndex) -> StepLine {
    let state = &run.statuses()[step.at()].state;
    let planned = &run.plan().steps[step.at()];
    let detail = step_reason(run, step);
    StepLine {
        mark: mark(state).to_owned(),
        node: planned.node.to_string(),
        group: planned.group,
        state: state.name().to_owned(),
        tone: match place(state) {
            0 => Tone::Bad,
            1 => Tone::Busy,
            3 => Tone::Good,
            _ => Tone::Quiet,
        },
        detail: detail.trim_start_matches(':').trim().to_owned(),
        report: (run.statuses()[step.at()].started).map(|_| run.node_run(step).to_string()),
    }
}

pub(super) async fn timeline(source: &Source, run: &str) -> Result<String, PageError> {
    let (record, run) = fetch(source, run).await?;
    let timeline = run.timeline(Timestamp::now());
    let timeline = timeline.ok_or_else(|| PageError::not_found("the run has not started"))?;
    let title = format!("run {} in {}", short(record.id), record.environment);
    Ok(timeline_svg(&title, &timeline))
}
