//! The state or result of a run: unusual steps first, the rest counted.

use bunraku_model::RunId;
use bunraku_plan::StepIndex;
use bunraku_plan::run::{Run, RunOutcome, RunPhase, RunRecord, RunSummary, StepState, StepStatus};
use jiff::Timestamp;

use crate::output::{Table, ago, count};

/// The maximum number of lines of one kind. More are counted.
const MOST_LINES: usize = 30;

/// Returns the last eight characters: ids created in the same second begin alike.
pub(crate) fn short(run: RunId) -> String {
    let text = run.to_string();
    text[text.len() - 8..].to_owned()
}

pub(crate) fn mark(state: &StepState) -> &'static str {
    match state {
        StepState::Succeeded => "✓",
        StepState::Waiting | StepState::Starting | StepState::Running => "…",
        StepState::Skipped { .. } | StepState::Cancelled => "-",
        _ => "✗",
    }
}

pub(crate) fn seconds(status: &StepStatus) -> String {
    match (status.asked, status.ended) {
        (Some(asked), Some(ended)) => {
            format!(" in {:.1} s", ended.duration_since(asked).as_secs_f64())
        }
        _ => String::new(),
    }
}

pub(crate) fn changes(run: &Run, status: &StepStatus) -> String {
    match (status.changed, run.options().noop) {
        (0, _) => String::new(),
        (changed, false) => format!(", {changed} changed"),
        (changed, true) => format!(", {changed} would change"),
    }
}

/// Formats the run for `run show`.
pub(crate) fn summary(record: &RunRecord, run: &Run) -> String {
    let mut out = format!(
        "run {}  {}  plan {}  {}, {}{}  {}\n",
        short(record.id),
        record.environment,
        record.plan.0.short(),
        count(record.nodes, "node"),
        count(run.plan().groups.len(), "group"),
        if record.options.noop { ", noop" } else { "" },
        phase(record, run),
    );
    for wait in run.waits() {
        out.push_str(&format!(
            "  waiting for {}\n",
            super::lines::wait_text(run, &wait)
        ));
    }
    let mut rest: Vec<(&'static str, usize)> = Vec::new();
    for (wanted, word) in [
        (is_success as fn(&StepState) -> bool, "succeeded"),
        (is_failure, ""),
        (skipped, "skipped"),
        (cancelled, "cancelled"),
        (active, ""),
        (waiting, "waiting"),
    ] {
        let steps: Vec<StepIndex> = (0..)
            .map(StepIndex)
            .zip(run.statuses())
            .filter(|(_, status)| wanted(&status.state))
            .map(|(step, _)| step)
            .collect();
        if steps.len() > MOST_LINES && !word.is_empty() {
            rest.push((word, steps.len()));
            continue;
        }
        for step in steps {
            out.push_str(&one(run, step));
        }
    }
    for (word, count) in rest {
        out.push_str(&format!("  {count} more {word}\n"));
    }
    out
}

fn is_success(state: &StepState) -> bool {
    *state == StepState::Succeeded
}

fn is_failure(state: &StepState) -> bool {
    state.is_over() && !is_success(state) && !skipped(state) && !cancelled(state)
}

fn skipped(state: &StepState) -> bool {
    matches!(state, StepState::Skipped { .. })
}

fn cancelled(state: &StepState) -> bool {
    *state == StepState::Cancelled
}

fn active(state: &StepState) -> bool {
    state.is_active()
}

fn waiting(state: &StepState) -> bool {
    *state == StepState::Waiting
}

fn one(run: &Run, step: StepIndex) -> String {
    let status = &run.statuses()[step.at()];
    let name = super::lines::name(run, step);
    let (mark, word) = (mark(&status.state), status.state.name());
    format!("  {mark} {name}  {word}{}\n", step_detail(run, step))
}

/// Returns the details of a step besides the word for its state, with the id of its report.
fn step_detail(run: &Run, step: StepIndex) -> String {
    let status = &run.statuses()[step.at()];
    let has_report = status.started.is_some()
        && !matches!(
            status.state,
            StepState::Succeeded | StepState::Skipped { .. }
        );
    let report = if has_report {
        format!("  (report {})", run.node_run(step))
    } else {
        String::new()
    };
    format!("{}{report}", step_reason(run, step))
}

/// Returns how long a step took, or why it is in its state.
pub(crate) fn step_reason(run: &Run, step: StepIndex) -> String {
    let status = &run.statuses()[step.at()];
    match &status.state {
        StepState::Succeeded if status.before => " earlier".to_owned(),
        StepState::Succeeded => format!("{}{}", seconds(status), changes(run, status)),
        StepState::Skipped { reason } => format!(": {reason}"),
        _ => status
            .failure_reason()
            .map_or_else(String::new, |reason| format!(": {reason}")),
    }
}

/// Formats the start time of a scheduled run and its expiry.
pub(crate) fn scheduled(due: Timestamp, record: &RunRecord) -> String {
    let zone = jiff::tz::TimeZone::system();
    let time_text = |time: Timestamp| {
        time.to_zoned(zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S %z")
            .to_string()
    };
    match record.due.start_before {
        None => format!("scheduled for {}", time_text(due)),
        Some(latest) => format!(
            "scheduled for {}; expires unless it starts before {}",
            time_text(due),
            time_text(latest)
        ),
    }
}

pub(crate) fn phase(record: &RunRecord, run: &Run) -> String {
    match run.phase() {
        RunPhase::Queued => match record.due.not_before {
            Some(due) if due > Timestamp::now() => scheduled(due, record),
            _ => "queued".to_owned(),
        },
        RunPhase::Running => "running".to_owned(),
        RunPhase::Stopping { reason } => format!("stopping: {reason}"),
        RunPhase::Cancelling { reason } => format!("cancelling: {reason}"),
        RunPhase::Ended { outcome } => {
            let time = match (run.begun(), run.ended()) {
                (Some(begun), Some(ended)) => {
                    format!(" in {:.1} s", ended.duration_since(begun).as_secs_f64())
                }
                _ => String::new(),
            };
            format!("{}{time}", outcome_word(*outcome))
        }
    }
}

pub(crate) fn outcome_word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Succeeded => "succeeded",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Expired => "expired",
        RunOutcome::Refused => "refused",
    }
}

/// Returns the state of a run for a list.
pub(crate) fn list_state(run: &RunSummary, now: Timestamp) -> String {
    match &run.end {
        None => match run.record.due.not_before {
            Some(due) if due > now => {
                let due = due.to_zoned(jiff::tz::TimeZone::system());
                format!("scheduled for {}", due.strftime("%Y-%m-%d %H:%M"))
            }
            _ => "open".to_owned(),
        },
        Some(end) => {
            let tally = end.tally;
            let bad = tally.finished() - tally.succeeded - tally.skipped - tally.cancelled;
            match end.outcome {
                RunOutcome::Failed => format!("failed ({bad} of {})", tally.all()),
                outcome => outcome_word(outcome).to_owned(),
            }
        }
    }
}

/// Returns the table of runs.
pub(crate) fn list_table(runs: &[RunSummary]) -> Table {
    let now = Timestamp::now();
    let mut table = Table::new(&[
        "RUN",
        "ENVIRONMENT",
        "NODES",
        "STATE",
        "REQUESTED",
        "BY",
        "REASON",
    ]);
    for run in runs {
        table.row(vec![
            short(run.record.id),
            run.record.environment.clone(),
            run.record.nodes.to_string(),
            list_state(run, now),
            format!("{} ago", ago(run.record.created, now)),
            run.record.by.clone(),
            run.record.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}
