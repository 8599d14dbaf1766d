//! Everything that can happen to a run, as one stream of events.

use std::collections::HashMap;

use bunraku_model::{CatalogId, NodeName, NodeRunId, RunId};
use bunraku_plan::StepIndex;
use bunraku_plan::run::{Event, Run, RunEnding, StepState};
use bunraku_store::{Follow, FollowEvent};

use super::answers::Answers;
use super::board::NodeBoard;
use super::check_results::StoredCheckResult;
use super::checks::OpenChecks;
use super::{Inner, StoredRunRequest};
use bunraku_control::keys::RunRequestKind;
use bunraku_control::reports::{NodeRunNews, ReportSubscription};
use bunraku_control::{ServiceError, document, keys};

/// The sources of a leader's events.
pub(super) struct Sources {
    pub(super) board: NodeBoard,
    pub(super) answers: Answers,
    pub(super) reports: ReportSubscription,
    pub(super) checks: OpenChecks,
    requests: Follow,
    run: RunId,
    /// The step of each node run.
    steps: HashMap<NodeRunId, StepIndex>,
}

impl Sources {
    pub(super) async fn open(inner: &Inner, run: &Run) -> Result<Self, ServiceError> {
        let nodes: Vec<NodeName> = run.plan().nodes().into_keys().cloned().collect();
        let mut sources = Self {
            board: NodeBoard::open(inner.store.clone(), nodes).await?,
            answers: Answers::new(inner.store.clone()),
            reports: inner.links.reports.subscribe([]),
            checks: OpenChecks::default(),
            requests: Follow::new(inner.store.clone(), keys::run_requests(run.id())),
            run: run.id(),
            steps: HashMap::new(),
        };
        for (step, status) in (0..).map(StepIndex).zip(run.statuses()) {
            if status.state.is_active() {
                sources.expect_report(run, step);
            }
        }
        Ok(sources)
    }

    pub(super) fn expect_report(&mut self, run: &Run, step: StepIndex) {
        let node = run.plan().steps[step.at()].node.clone();
        let node_run = run.node_run(step);
        self.steps.insert(node_run, step);
        self.reports.add(node, node_run);
    }

    /// Returns the next events. Safe to cancel at any time: nothing is lost.
    pub(super) async fn next(&mut self, run: &Run) -> Result<Vec<Event>, ServiceError> {
        tokio::select! {
            news = self.reports.next() => Ok(report_event(run, &self.steps, news?).into_iter().collect()),
            event = self.answers.next() => Ok(vec![event?]),
            changed = self.board.next() => {
                let changed = changed?;
                Ok(self.connections(run, |node| changed.contains(node)))
            }
            event = self.checks.next() => Ok(vec![event]),
            asked = self.requests.next() => self.operator_requests(asked?),
        }
    }

    /// Returns the events for running steps whose nodes disconnected or returned.
    pub(super) fn connections(&self, run: &Run, of: impl Fn(&NodeName) -> bool) -> Vec<Event> {
        let steps = (0..).map(StepIndex).zip(run.statuses());
        steps
            .filter(|(_, status)| status.state.is_active())
            .filter_map(|(step, status)| {
                let node = &run.plan().steps[step.at()].node;
                if !of(node) {
                    return None;
                }
                let standing = self.board.node_state(node);
                match (standing.connected, status.away.is_some()) {
                    (false, false) => Some(Event::Away { step }),
                    (true, true) => Some(Event::Back { step }),
                    _ => None,
                }
            })
            .collect()
    }

    /// Returns the requests of operators; those already in the log change nothing.
    fn operator_requests(&self, followed: FollowEvent) -> Result<Vec<Event>, ServiceError> {
        let mut events = Vec::new();
        for item in &followed.into_puts() {
            if let Some((gate, check)) = keys::parse_run_check(self.run, &item.key) {
                events.push(check_event(gate, check, document::decode(item)?));
                continue;
            }
            let StoredRunRequest { by } = document::decode(item)?;
            if item.key == keys::run_request(self.run, RunRequestKind::Cancel) {
                events.push(Event::CancelRequested { by });
            } else if item.key == keys::run_request(self.run, RunRequestKind::Stop) {
                events.push(Event::StopRequested { by });
            }
        }
        Ok(events)
    }
}

/// Converts the reported result of a check to an event.
fn check_event(gate: u32, check: u32, result: StoredCheckResult) -> Event {
    let StoredCheckResult {
        by,
        passed,
        message,
    } = result;
    if passed {
        return Event::CheckPassed {
            gate,
            check,
            by,
            message,
        };
    }
    Event::CheckFailed {
        gate,
        check,
        reason: message.unwrap_or_else(|| format!("{by} rejected it")),
        by,
    }
}

/// Converts news of a report to an event of its step.
fn report_event(
    run: &Run,
    steps: &HashMap<NodeRunId, StepIndex>,
    news: NodeRunNews,
) -> Option<Event> {
    let (NodeRunNews::Started { run: id, .. }
    | NodeRunNews::Progress { run: id, .. }
    | NodeRunNews::Finished { run: id, .. }) = &news;
    let step = *steps.get(id)?;
    match news {
        NodeRunNews::Started { .. } => {
            let starting = run.statuses()[step.at()].state == StepState::Starting;
            starting.then_some(Event::Started { step })
        }
        NodeRunNews::Progress { .. } => None,
        NodeRunNews::Finished {
            finished,
            catalog,
            failures,
            ..
        } => {
            let (ending, message) = match other_catalog(run, step, catalog) {
                Some(message) => (RunEnding::Failed, Some(message)),
                None => (finished.ending, finished.message),
            };
            Some(Event::Ended {
                step,
                ending,
                changed: finished.changed + finished.pending,
                failed: finished.failed,
                message,
                failures,
                drifted: finished.corrective,
            })
        }
    }
}

/// Says that a node applied another catalog than the planned one. An agent that is too old to know
/// plans does that.
fn other_catalog(run: &Run, step: StepIndex, applied: Option<CatalogId>) -> Option<String> {
    let planned = run.plan().steps[step.at()]
        .work
        .as_ref()?
        .catalog()?
        .catalog;
    let applied = applied.filter(|applied| *applied != planned)?;
    Some(format!(
        "it applied catalog {} instead of the planned {}; update its agent",
        applied.0.short(),
        planned.0.short()
    ))
}
