//! One line per event.

use bunraku_plan::StepIndex;
use bunraku_plan::run::{Event, RolloutCheck, Run, RunLogEntry, RunPhase, RunWait, StepState};
use jiff::tz::TimeZone;

use crate::output::count;

/// Describes a log entry after `run` has applied it. `before` is the run before that.
pub(crate) fn line(before: &Run, run: &Run, entry: &RunLogEntry) -> Vec<String> {
    let time = entry.at.to_zoned(TimeZone::system());
    let stamp = time.strftime("%Y-%m-%d %H:%M:%S %z");
    let mut texts = Vec::new();
    if let Event::Begun { unfit } = &entry.event {
        let nodes = run.plan().nodes().len();
        texts.push(match unfit.len() {
            0 if nodes == 1 => "the node is connected and enabled".to_owned(),
            0 => format!("all {nodes} nodes are connected and enabled"),
            unfit => format!("{unfit} of {} not ready", count(nodes, "node")),
        });
    }
    if let Event::StopRequested { by } = &entry.event {
        texts.push(format!("{by} requested a stop: no more nodes start"));
    }
    if let Event::CancelRequested { by } = &entry.event {
        texts.push(format!(
            "{by} requested a cancel: running nodes are stopped"
        ));
    }
    match &entry.event {
        Event::Approved { by } => texts.push(format!("{by} approved the run")),
        Event::Expired { reason } => texts.push(reason.clone()),
        Event::CheckPassed { check, by, .. } => {
            texts.push(format!("{} passed ({by})", check_name(run, *check)));
        }
        Event::CheckFailed {
            check, by, reason, ..
        } => texts.push(format!(
            "{} failed ({by}): {reason}",
            check_name(run, *check)
        )),
        _ => {}
    }
    let known = before.waits();
    for wait in run.waits() {
        let is_new = !known.contains(&wait);
        if is_new && matches!(wait, RunWait::Soak { .. } | RunWait::Check { .. }) {
            texts.push(format!("waiting for {}", wait_text(run, &wait)));
        }
    }
    let states = before.statuses().iter().zip(run.statuses());
    let mut skipped = 0;
    for (step, (old, new)) in (0..).map(StepIndex).zip(states) {
        if old.state != new.state {
            match &new.state {
                StepState::Skipped { .. } => skipped += 1,
                _ => texts.push(changed(run, step)),
            }
        } else if old.away.is_none() && new.away.is_some() {
            texts.push(format!("{} is disconnected", name(run, step)));
        } else if old.away.is_some() && new.away.is_none() && new.state.is_active() {
            texts.push(format!("{} has reconnected", name(run, step)));
        }
    }
    if skipped > 0 {
        texts.push(format!("{skipped} skipped"));
    }
    if let (false, RunPhase::Stopping { reason }) = (
        matches!(before.phase(), RunPhase::Stopping { .. }),
        run.phase(),
    ) {
        texts.push(format!("no more nodes start: {reason}"));
    }
    texts
        .into_iter()
        .map(|text| format!("{stamp}: {text}"))
        .collect()
}

fn check_name(run: &Run, check: u32) -> String {
    let what = run.options().checks.get(check as usize);
    what.map_or_else(
        || "a check".to_owned(),
        |what| format!("the check `{what}`"),
    )
}

/// Describes what a run waits for, and how a person can end the wait.
pub(crate) fn wait_text(run: &Run, wait: &RunWait) -> String {
    let is_manual = matches!(
        wait,
        RunWait::Check {
            what: RolloutCheck::Manual,
            ..
        }
    );
    if is_manual {
        let short = super::summary::short(run.id());
        format!("{wait} (`bunraku run confirm {short}`)")
    } else {
        wait.to_string()
    }
}

pub(super) fn name(run: &Run, step: StepIndex) -> String {
    run.plan()
        .step(step)
        .map_or_else(String::new, crate::plan_view::name)
}

fn changed(run: &Run, step: StepIndex) -> String {
    let status = &run.statuses()[step.at()];
    let name = name(run, step);
    let tally = run.tally();
    let progress = format!("{} of {} done", tally.finished(), tally.all());
    match &status.state {
        StepState::Starting => format!("{name} is starting"),
        StepState::Running => format!("{name} is running"),
        StepState::Succeeded => {
            let seconds = super::summary::seconds(status);
            let changes = super::summary::changes(run, status);
            format!("{name} succeeded{seconds}{changes} ({progress})")
        }
        state => {
            let why = status
                .failure_reason()
                .map_or_else(String::new, |reason| format!(": {reason}"));
            format!("{name} {}{why} ({progress})", state.name())
        }
    }
}
