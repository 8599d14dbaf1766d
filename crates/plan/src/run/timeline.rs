//! The times of each step, and the chain of steps that determined the length of the run.

use jiff::Timestamp;
use serde::Serialize;

use super::Run;
use super::status::StepState;
use bunraku_wire::api::ordered_runs::StepIndex;

/// The steps that were requested, in the order of their start.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Timeline {
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub bars: Vec<Bar>,
}

/// The times of one step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    pub step: StepIndex,
    pub name: String,
    pub state: String,
    pub asked: Timestamp,
    /// The time at which it began to work. Until then it waited in the node's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    pub ended: Timestamp,
    /// `true` if it is on the longest chain.
    pub critical: bool,
}

impl Bar {
    pub fn seconds(&self) -> f64 {
        self.ended.duration_since(self.asked).as_secs_f64()
    }
}

impl Run {
    /// Returns the timeline up to `now`, or `None` before the run began.
    pub fn timeline(&self, now: Timestamp) -> Option<Timeline> {
        let begun = self.begun?;
        let ended = self.ended.unwrap_or(now).max(begun);
        let critical = self.critical_path();
        let mut bars: Vec<Bar> = (0..)
            .map(StepIndex)
            .zip(&self.statuses)
            .filter_map(|(step, status)| {
                let asked = status.asked?;
                let planned = &self.plan.steps[step.at()];
                let name = if planned.tags.is_empty() {
                    planned.node.to_string()
                } else {
                    format!("{} (pass {})", planned.node, planned.pass)
                };
                Some(Bar {
                    step,
                    name,
                    state: status.state.name().to_owned(),
                    asked,
                    started: status.started,
                    ended: status.ended.unwrap_or(ended).max(asked),
                    critical: critical.contains(&step),
                })
            })
            .collect();
        bars.sort_by_key(|bar| (bar.asked, bar.step));
        Some(Timeline { begun, ended, bars })
    }

    /// Returns the path from the step that ended last back along the dependency that each
    /// step waited for longest.
    fn critical_path(&self) -> Vec<StepIndex> {
        let end = |step: StepIndex| {
            let status = &self.statuses[step.at()];
            let working = matches!(status.state, StepState::Starting | StepState::Running);
            status.asked.map(|_| {
                let open = working.then_some(Timestamp::MAX);
                status.ended.or(open).unwrap_or(Timestamp::MIN)
            })
        };
        let steps = (0..).map(StepIndex).take(self.statuses.len());
        let mut path = Vec::new();
        let mut at = steps
            .filter(|step| end(*step).is_some())
            .max_by_key(|step| end(*step));
        while let Some(step) = at {
            path.push(step);
            at = self.plan.steps[step.at()]
                .waits_for
                .iter()
                .map(|wait| wait.step)
                .filter(|before| end(*before).is_some())
                .max_by_key(|before| end(*before));
        }
        path.reverse();
        path
    }
}
