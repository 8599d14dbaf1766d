//! The state of a run as a block of lines that fits the terminal. Pure.
//!
//! If there is enough room, all nodes are shown in their groups. Otherwise the running ones are
//! shown and the others are counted.

use std::collections::{BTreeMap, HashMap};

use bunraku_model::NodeRunId;
use bunraku_plan::StepIndex;
use bunraku_plan::run::{Run, RunPhase, StepState, StepStatus};
use jiff::Timestamp;

use crate::output::count;

/// The progress of each node run.
pub(crate) type Progress = HashMap<NodeRunId, NodeProgress>;

/// The progress from a report so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeProgress {
    /// The number of finished resources, and the total.
    pub(crate) done: u64,
    pub(crate) all: u64,
    /// The latest resource, and the number of failures.
    pub(crate) resource: Option<String>,
    pub(crate) failed: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct ScreenSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The lines reserved for scrolling events.
const ROOM_ABOVE: usize = 6;
/// The number of awaited nodes that are listed by name.
const MOST_AWAITED: usize = 3;

/// Renders the whole block.
pub(crate) fn screen(run: &Run, progress: &Progress, now: Timestamp, size: ScreenSize) -> String {
    let room = size.rows.saturating_sub(ROOM_ABOVE).max(4);
    let plan = run.plan();
    let whole = plan.steps.len() + plan.groups.len() < room;
    let mut lines = if whole {
        tree(run, progress, now)
    } else {
        running_nodes(run, progress, now, room.saturating_sub(2))
    };
    lines.push(counts(run));
    lines.extend(wait_reason(run));
    let cut = |line: &String| cut(line, size.columns);
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// Renders all nodes in their groups.
fn tree(run: &Run, progress: &Progress, now: Timestamp) -> Vec<String> {
    let widest = names(run, |_| true);
    let mut lines = Vec::new();
    for (number, _) in (1u32..).zip(&run.plan().groups) {
        lines.push(format!("  group {number}"));
        for (step, planned) in (0..).map(StepIndex).zip(&run.plan().steps) {
            if planned.group == number {
                lines.push(format!("  {}", row(run, progress, now, step, widest)));
            }
        }
    }
    lines
}

/// Renders only running nodes, the longest-running first.
fn running_nodes(run: &Run, progress: &Progress, now: Timestamp, most: usize) -> Vec<String> {
    let mut active: Vec<(Option<Timestamp>, StepIndex)> = (0..)
        .map(StepIndex)
        .zip(run.statuses())
        .filter(|(_, status)| status.state.is_active())
        .map(|(step, status)| (status.asked, step))
        .collect();
    active.sort();
    let more = active.len().saturating_sub(most);
    let shown = if more > 0 {
        most.saturating_sub(1)
    } else {
        most
    };
    let widest = names(run, StepState::is_active);
    let mut lines: Vec<String> = active
        .iter()
        .take(shown)
        .map(|(_, step)| row(run, progress, now, *step, widest))
        .collect();
    if more > 0 {
        lines.push(format!("    and {} more running", active.len() - shown));
    }
    lines
}

fn names(run: &Run, of: impl Fn(&StepState) -> bool) -> usize {
    (0..)
        .map(StepIndex)
        .zip(run.statuses())
        .filter(|(_, status)| of(&status.state))
        .map(|(step, _)| super::lines::name(run, step).chars().count())
        .max()
        .unwrap_or(0)
        .min(48)
}

fn row(run: &Run, progress: &Progress, now: Timestamp, step: StepIndex, widest: usize) -> String {
    let status = &run.statuses()[step.at()];
    let name = super::lines::name(run, step);
    let mark = match &status.state {
        StepState::Waiting => '·',
        StepState::Starting | StepState::Running => spinner(now),
        state => super::summary::mark(state).chars().next().unwrap_or(' '),
    };
    let printed = match &status.state {
        StepState::Waiting => waits(run, step),
        StepState::Starting | StepState::Running => {
            let at = progress.get(&run.node_run(step));
            running_line(status, at, now)
        }
        StepState::Succeeded if status.before => "succeeded earlier".to_owned(),
        StepState::Succeeded => format!(
            "succeeded{}{}",
            super::summary::seconds(status),
            super::summary::changes(run, status)
        ),
        StepState::Skipped { reason } => format!("skipped: {reason}"),
        state => match status.failure_reason() {
            Some(reason) => format!("{}: {reason}", state.name()),
            None => state.name().to_owned(),
        },
    };
    format!("  {mark} {name:widest$}  {printed}")
}

/// Formats `running 12 s  File[/etc/motd]  3 of 40`.
fn running_line(status: &StepStatus, at: Option<&NodeProgress>, now: Timestamp) -> String {
    let since = status.asked.unwrap_or(now);
    let seconds = now.duration_since(since).as_secs().max(0);
    let mut printed = format!("{:<8} {:>5}", status.state.name(), elapsed(seconds));
    if let Some(at) = at {
        if at.all > 0 {
            printed.push_str(&format!("  {} of {}", at.done, at.all));
        }
        if at.failed > 0 {
            printed.push_str(&format!(", {} failed", at.failed));
        }
        if let Some(resource) = &at.resource {
            printed.push_str(&format!("  {resource}"));
        }
    }
    if status.away.is_some() {
        printed.push_str("  (disconnected)");
    }
    printed
}

fn elapsed(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{}:{:02}", seconds / 60, seconds % 60),
    }
}

/// Lists the nodes that a node still waits for.
fn waits(run: &Run, step: StepIndex) -> String {
    let open: Vec<&str> = run.plan().steps[step.at()]
        .waits_for
        .iter()
        .filter(|wait| run.statuses()[wait.step.at()].state != StepState::Succeeded)
        .map(|wait| wait.node.as_str())
        .collect();
    match open.as_slice() {
        [] => "next".to_owned(),
        [one] => format!("waits for {one}"),
        [one, rest @ ..] => format!("waits for {one} and {} more", rest.len()),
    }
}

/// Counts the nodes in each state.
fn counts(run: &Run) -> String {
    let tally = run.tally();
    let bad = tally.finished() - tally.succeeded - tally.skipped - tally.cancelled;
    let mut parts = vec![format!("{} of {} done", tally.finished(), tally.all())];
    for (count, word) in [
        (bad, "did not succeed"),
        (tally.skipped, "skipped"),
        (tally.cancelled, "cancelled"),
        (tally.starting + tally.running, "running"),
        (tally.waiting, "waiting"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    match run.phase() {
        RunPhase::Queued => parts.push("queued: other runs hold some of these nodes".to_owned()),
        RunPhase::Stopping { .. } => parts.push("stopping: no more nodes start".to_owned()),
        RunPhase::Cancelling { .. } => parts.push("cancelling".to_owned()),
        _ => {}
    }
    format!("  {}", parts.join(", "))
}

/// Names the nodes that most of the pending ones wait for.
fn wait_reason(run: &Run) -> Option<String> {
    let mut waited: BTreeMap<&str, usize> = BTreeMap::new();
    let mut next = 0;
    for (step, status) in run.plan().steps.iter().zip(run.statuses()) {
        if status.state != StepState::Waiting {
            continue;
        }
        let state = |index: StepIndex| &run.statuses()[index.at()].state;
        let active = step
            .waits_for
            .iter()
            .filter(|wait| state(wait.step).is_active());
        for wait in active {
            *waited.entry(wait.node.as_str()).or_default() += 1;
        }
        let ready = |wait: &bunraku_plan::StepDependency| *state(wait.step) == StepState::Succeeded;
        next += usize::from(step.waits_for.iter().all(ready));
    }
    let mut waited: Vec<(&str, usize)> = waited.into_iter().collect();
    waited.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut parts: Vec<String> = waited
        .iter()
        .take(MOST_AWAITED)
        .map(|(node, number)| {
            let verb = if *number == 1 { "waits" } else { "waiting" };
            format!("{number} {verb} for {node}")
        })
        .collect();
    if waited.len() > MOST_AWAITED {
        parts.push(format!(
            "others wait for {}",
            count(waited.len() - MOST_AWAITED, "more node")
        ));
    }
    if next > 0 && *run.phase() == RunPhase::Running {
        parts.push(format!("{next} ready to start"));
    }
    (!parts.is_empty()).then(|| format!("  {}", parts.join(", ")))
}

fn spinner(now: Timestamp) -> char {
    const FRAMES: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧'];
    let frame = now.as_millisecond().unsigned_abs() / 120;
    FRAMES[(frame % FRAMES.len() as u64) as usize]
}

/// Cuts a line to the width: a line that wraps would be overdrawn.
fn cut(line: &str, columns: usize) -> String {
    let most = columns.saturating_sub(1);
    if line.chars().count() > most {
        line.chars()
            .take(most.saturating_sub(1))
            .chain(['…'])
            .collect()
    } else {
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bunraku_model::RunId;
    use bunraku_plan::run::{Action, Event, NodeLimit, RunEnding, RunOptions};
    use bunraku_plan::{Inventory, PlanOptions, site_file};
    use expect_test::{Expect, expect};

    use super::*;

    const SIZE: ScreenSize = ScreenSize {
        columns: 72,
        rows: 24,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn run(text: &str, options: RunOptions) -> Run {
        let site = site_file("site.yaml", text, &Inventory::default()).expect("a site");
        let plan = bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan");
        Run::new(RunId(uuid::Uuid::nil()), Arc::new(plan), options, &[])
    }

    fn ended(step: u32, ending: RunEnding) -> Event {
        Event::Ended {
            step: StepIndex(step),
            ending,
            changed: 3,
            failed: 0,
            message: (ending == RunEnding::Failed)
                .then(|| "Service[nginx]: no such unit".to_owned()),
            failures: Vec::new(),
            drifted: 0,
        }
    }

    fn check(run: &Run, progress: &Progress, now: i64, expected: Expect) {
        let shown = screen(run, progress, at(now), SIZE);
        for line in shown.lines() {
            assert!(line.chars().count() < SIZE.columns, "it wraps: {line}");
        }
        assert!(shown.lines().count() <= SIZE.rows - 3, "it does not fit");
        // The line without indentation makes the indentation of the others count.
        expected.assert_eq(&format!("screen\n{shown}\n"));
    }

    #[test]
    fn four_nodes_are_a_tree_with_what_each_does() {
        let mut run = run(
            "applications: {lamp: {components: {
              db: {node: dev1.devco.net, produces: [sql]},
              web: {nodes: [dev2.devco.net, dev3.devco.net, dev4.devco.net], consumes: [sql]}}}}",
            RunOptions::default(),
        );
        check(
            &run,
            &Progress::new(),
            0,
            expect![[r#"
                screen
                  group 1
                    · dev1.devco.net  next
                  group 2
                    · dev2.devco.net  waits for dev1.devco.net
                    · dev3.devco.net  waits for dev1.devco.net
                    · dev4.devco.net  waits for dev1.devco.net
                  0 of 4 done, 4 waiting, queued: other runs hold some of these nodes
            "#]],
        );
        run.step(&Event::Begun { unfit: Vec::new() }, at(0));
        run.step(&Event::Started { step: StepIndex(0) }, at(1));
        let mut progress = Progress::new();
        let database = NodeProgress {
            done: 12,
            all: 40,
            resource: Some("File[/etc/mysql/my.cnf]".to_owned()),
            failed: 0,
        };
        progress.insert(run.node_run(StepIndex(0)), database);
        check(
            &run,
            &progress,
            75,
            expect![[r#"
                screen
                  group 1
                    ⠙ dev1.devco.net  running   1:15  12 of 40  File[/etc/mysql/my.cnf]
                  group 2
                    · dev2.devco.net  waits for dev1.devco.net
                    · dev3.devco.net  waits for dev1.devco.net
                    · dev4.devco.net  waits for dev1.devco.net
                  0 of 4 done, 1 running, 3 waiting
                  3 waiting for dev1.devco.net
            "#]],
        );
        run.step(&ended(0, RunEnding::Succeeded), at(80));
        run.step(&Event::Started { step: StepIndex(1) }, at(81));
        run.step(&ended(1, RunEnding::Failed), at(82));
        run.step(&Event::Away { step: StepIndex(2) }, at(83));
        check(
            &run,
            &progress,
            90,
            expect![[r#"
                screen
                  group 1
                    ✓ dev1.devco.net  succeeded in 80.0 s, 3 changed
                  group 2
                    ✗ dev2.devco.net  failed: Service[nginx]: no such unit
                    ⠦ dev3.devco.net  starting  10 s  (disconnected)
                    ⠦ dev4.devco.net  starting  10 s
                  2 of 4 done, 1 did not succeed, 2 running, stopping: no more nodes s…
            "#]],
        );
    }

    #[test]
    fn of_forty_nodes_active_ones_are_shown_and_the_others_counted() {
        let web: Vec<String> = (1..=39).map(|number| format!("web-{number:02}")).collect();
        let text = format!(
            "applications: {{shop: {{components: {{db: {{node: db, produces: [sql]}},
             web: {{nodes: [{}], consumes: [sql]}}}}}}}}",
            web.join(", ")
        );
        let options = RunOptions {
            batch: Some(NodeLimit::Count(20)),
            ..RunOptions::default()
        };
        let mut run = run(&text, options);
        run.step(&Event::Begun { unfit: Vec::new() }, at(0));
        run.step(&Event::Started { step: StepIndex(0) }, at(1));
        check(
            &run,
            &Progress::new(),
            5,
            expect![[r#"
                screen
                  ⠙ db  running    5 s
                  0 of 40 done, 1 running, 39 waiting
                  39 waiting for db
            "#]],
        );
        let started = run.step(&ended(0, RunEnding::Succeeded), at(10));
        assert_eq!(started.len(), 20, "the batch");
        for action in started.iter().take(15) {
            let Action::Start { step, .. } = action else {
                panic!("only starts");
            };
            run.step(&Event::Started { step: *step }, at(11));
        }
        check(
            &run,
            &Progress::new(),
            12,
            expect![[r#"
                screen
                  ⠼ web-01  running    2 s
                  ⠼ web-02  running    2 s
                  ⠼ web-03  running    2 s
                  ⠼ web-04  running    2 s
                  ⠼ web-05  running    2 s
                  ⠼ web-06  running    2 s
                  ⠼ web-07  running    2 s
                  ⠼ web-08  running    2 s
                  ⠼ web-09  running    2 s
                  ⠼ web-10  running    2 s
                  ⠼ web-11  running    2 s
                  ⠼ web-12  running    2 s
                  ⠼ web-13  running    2 s
                  ⠼ web-14  running    2 s
                  ⠼ web-15  running    2 s
                    and 5 more running
                  1 of 40 done, 20 running, 19 waiting
                  19 ready to start
            "#]],
        );
        run.step(&ended(1, RunEnding::Failed), at(12));
        check(
            &run,
            &Progress::new(),
            20,
            expect![[r#"
                screen
                  ⠦ web-02  running   10 s
                  ⠦ web-03  running   10 s
                  ⠦ web-04  running   10 s
                  ⠦ web-05  running   10 s
                  ⠦ web-06  running   10 s
                  ⠦ web-07  running   10 s
                  ⠦ web-08  running   10 s
                  ⠦ web-09  running   10 s
                  ⠦ web-10  running   10 s
                  ⠦ web-11  running   10 s
                  ⠦ web-12  running   10 s
                  ⠦ web-13  running   10 s
                  ⠦ web-14  running   10 s
                  ⠦ web-15  running   10 s
                  ⠦ web-16  starting  10 s
                    and 4 more running
                  21 of 40 done, 1 did not succeed, 19 skipped, 19 running, stopping: …
            "#]],
        );
    }
}
