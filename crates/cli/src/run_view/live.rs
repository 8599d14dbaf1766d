//! A run on a terminal: what runs now, what waits for what, and what is done
//! scrolling by above.

use std::collections::BTreeMap;
use std::time::Duration;

use bunraku_plan::StepIndex;
use bunraku_plan::run::{Run, RunPhase, StepState};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

/// Nodes that are shown one by one.
const MOST_ROWS: usize = 12;

pub(crate) struct Live {
    screen: MultiProgress,
    rows: BTreeMap<StepIndex, ProgressBar>,
    foot: ProgressBar,
}

impl Live {
    pub(crate) fn new() -> Self {
        let screen = MultiProgress::new();
        let foot = screen.add(ProgressBar::new_spinner());
        foot.set_style(style("{msg}"));
        Self {
            screen,
            rows: BTreeMap::new(),
            foot,
        }
    }

    /// A line that stays.
    pub(crate) fn say(&self, line: &str) {
        // Nothing is left to do if the terminal is gone.
        let _ = self.screen.println(line);
    }

    /// Shows the run as it stands.
    pub(crate) fn show(&mut self, run: &Run) {
        let active = |step: &StepIndex| run.statuses()[step.at()].state.is_active();
        self.rows.retain(|step, row| {
            let stays = active(step);
            if !stays {
                row.finish_and_clear();
            }
            stays
        });
        for (step, status) in (0..).map(StepIndex).zip(run.statuses()) {
            if !status.state.is_active() {
                continue;
            }
            if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&step) {
                continue;
            }
            let row = self.rows.entry(step).or_insert_with(|| {
                let row = ProgressBar::new_spinner();
                row.set_style(style("  {spinner} {msg}  {elapsed}"));
                let since = status.asked.unwrap_or_else(Timestamp::now);
                let passed = Duration::try_from(Timestamp::now().duration_since(since));
                let row = self.screen.insert_before(&self.foot, row);
                row.set_elapsed(passed.unwrap_or_default());
                row.enable_steady_tick(Duration::from_millis(120));
                row
            });
            let away = if status.away.is_some() { ", away" } else { "" };
            let name = super::lines::name(run, step);
            row.set_message(format!("{name}  {}{away}", status.state.word()));
        }
        self.foot.set_message(foot(run, self.rows.len()));
        self.foot.tick();
    }

    pub(crate) fn finish(self) {
        for row in self.rows.values() {
            row.finish_and_clear();
        }
        self.foot.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Counts, and whom most of those that wait are waiting for.
fn foot(run: &Run, rows: usize) -> String {
    let tally = run.tally();
    let active = tally.starting + tally.running;
    let mut parts = vec![format!("{} of {} done", tally.over(), tally.all())];
    if active > rows {
        parts.push(format!("{} more run", active - rows));
    }
    if *run.phase() == RunPhase::Queued {
        parts.push("queued behind other runs".to_owned());
    }
    let mut waited: BTreeMap<&str, usize> = BTreeMap::new();
    for (step, status) in run.plan().steps.iter().zip(run.statuses()) {
        if status.state != StepState::Waiting {
            continue;
        }
        for wait in &step.waits_for {
            if run.statuses()[wait.step.at()].state.is_active() {
                *waited.entry(wait.node.as_str()).or_default() += 1;
            }
        }
    }
    let mut waited: Vec<(&str, usize)> = waited.into_iter().collect();
    waited.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (node, count) in waited.iter().take(3) {
        let verb = if *count == 1 { "waits" } else { "wait" };
        parts.push(format!("{count} {verb} for {node}"));
    }
    format!("  {}", parts.join(", "))
}
