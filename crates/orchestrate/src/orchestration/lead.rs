//! Leading one run: stores events, then performs the resulting actions.

use std::sync::Arc;

use bunraku_model::{FiringId, NodeName, RunId, TriggerName};
use bunraku_plan::run::{
    Action, Event, Run, RunEnd, RunLogEntry, RunOutcome, RunPhase, RunRecord, StepState,
    UnavailableNode, UnavailableReason,
};
use bunraku_plan::{PlannedWork, StepIndex};
use bunraku_store::{Compare, settle};
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use bytes::Bytes;
use futures::FutureExt;
use uuid::Uuid;

use super::log::{self, LeadershipLost, LogWriter};
use super::perform::ActionOutcome;
use super::sources::Sources;
use super::{Inner, purpose};
use bunraku_control::{AuditAction, ServiceError, document, keys};
use bunraku_cues::triggers::AnnouncedFiring;

/// The most events stored together.
const MOST_TOGETHER: usize = 200;

/// The leader of a run.
pub(super) struct Leader<'a> {
    pub(super) inner: &'a Inner,
    pub(super) record: RunRecord,
    pub(super) run: Run,
    pub(super) writer: LogWriter,
    pub(super) sources: Sources,
}

impl Inner {
    /// Leads until the run has ended (true), or another server leads it (false).
    pub(super) async fn lead(&self, id: RunId, fence: Bytes) -> Result<bool, ServiceError> {
        let Some(stored) = document::read::<RunRecord>(&*self.store, &keys::run_record(id)).await?
        else {
            return Ok(true);
        };
        let record = stored.document;
        let plan = Arc::new(self.plan(id).await?);
        let log = log::read(&*self.store, id, 0).await?;
        let writer = LogWriter::new(self.store.clone(), id, fence, log.next);
        let (run, outstanding) = Run::of_record(&record, plan, log.entries);
        let sources = Sources::open(self, &run).await?;
        let mut leader = Leader {
            inner: self,
            record,
            run,
            writer,
            sources,
        };
        leader.lead(outstanding).await
    }
}

impl Leader<'_> {
    async fn lead(&mut self, outstanding: Vec<Action>) -> Result<bool, ServiceError> {
        if *self.run.phase() == RunPhase::Queued
            && !(self.wait_for_approval().await?
                && self.wait_until_due().await?
                && self.wait_for_turn().await?
                && self.wait_for_nodes().await?)
        {
            return Ok(false);
        }
        let nodes: Vec<NodeName> = self.run.plan().nodes().into_keys().cloned().collect();
        let held = match self.run.outcome() {
            // The outcome was decided by a leader that died before it released the nodes.
            Some(_) => {
                self.inner.release_all(self.run.id(), &nodes).await?;
                None
            }
            None => {
                let plan = self.run.plan();
                let holding = self.inner.hold_nodes(self.run.id(), plan, &self.writer);
                Some(holding.await?)
            }
        };
        let mut events = self.perform(outstanding).await?;
        if *self.run.phase() == RunPhase::Queued {
            events.insert(0, self.first_event().await?);
        }
        // Changes that happened while the run had no leader.
        events.extend(self.sources.connections(&self.run, |_| true));
        loop {
            while !events.is_empty() {
                events = match self.store_and_do(events).await? {
                    Ok(more) => more,
                    Err(LeadershipLost) => return Ok(false),
                };
            }
            if self.run.outcome().is_some() {
                // First, because anyone who learns that the run has ended may use its nodes.
                if let Some(held) = held {
                    held.release().await;
                }
                return self.finish().await;
            }
            events = self.next_events().await?;
        }
    }

    /// Returns the event that begins the run, or the one that refuses a plan that is no longer
    /// valid. The nodes are already held, so nothing else starts on them after this check.
    async fn first_event(&mut self) -> Result<Event, ServiceError> {
        let (plan, done) = (self.run.plan(), &self.record.done);
        let plans = &self.inner.links.plans;
        let nodes = plans.stale_nodes(plan, done, purpose(&self.record)).await?;
        Ok(if nodes.is_empty() {
            self.begun()
        } else {
            Event::PlanChanged { nodes }
        })
    }

    /// Returns the event that begins the run, after a check of every node.
    fn begun(&self) -> Event {
        let steps = (0..).map(StepIndex).zip(&self.run.plan().steps);
        let unfit = steps.filter_map(|(step, planned)| {
            let waits = self.run.statuses()[step.at()].state == StepState::Waiting;
            let state = self.sources.board.node_state(&planned.node);
            let has_nothing = planned.work == Some(PlannedWork::Nothing);
            let reason = (state.unavailable_reason())
                .or(has_nothing.then_some(UnavailableReason::NoCatalog));
            reason
                .filter(|_| waits)
                .map(|reason| UnavailableNode { step, reason })
        });
        Event::Begun {
            unfit: unfit.collect(),
        }
    }

    /// Stores events and performs the resulting actions; returns the events of those.
    pub(super) async fn store_and_do(
        &mut self,
        events: Vec<Event>,
    ) -> Result<Result<Vec<Event>, LeadershipLost>, ServiceError> {
        let at = self.inner.clock.now();
        let entries: Vec<RunLogEntry> = events
            .into_iter()
            .map(|event| RunLogEntry { at, event })
            .collect();
        if let Err(fenced) = self.writer.append(&entries).await? {
            return Ok(Err(fenced));
        }
        let mut actions = Vec::new();
        for entry in &entries {
            actions.extend(self.run.step(&entry.event, entry.at));
        }
        self.perform(actions).await.map(Ok)
    }

    async fn perform(&mut self, actions: Vec<Action>) -> Result<Vec<Event>, ServiceError> {
        let mut events = Vec::new();
        let mut able = Vec::with_capacity(actions.len());
        for action in actions {
            if let Action::Check { gate, check } = action {
                let find = Arc::clone(&self.inner.links.find_nodes);
                let clock = self.inner.clock.clone();
                (self.sources.checks).begin(&self.run, gate, check, find, clock);
                continue;
            }
            if let Action::Start { step, .. } = &action {
                let node = &self.run.plan().steps[step.at()].node;
                let standing = self.sources.board.node_state(node);
                if let Some(reason) = standing.disabled {
                    events.push(Event::Disabled {
                        step: *step,
                        reason,
                    });
                    continue;
                }
                if !standing.connected {
                    events.push(Event::Away { step: *step });
                }
                self.sources.expect_report(&self.run, *step);
            }
            able.push(action);
        }
        let performed = self
            .inner
            .perform(&self.record, &self.run, &self.writer, able)
            .await?;
        for one in performed {
            match one {
                ActionOutcome::Sent(node, id, step) => self.sources.answers.expect(node, id, step),
                ActionOutcome::Impossible(step, reason) => {
                    events.push(Event::Refused { step, reason })
                }
                ActionOutcome::Nothing => {}
            }
        }
        Ok(events)
    }

    /// Returns the next events: the first one, and those right behind it.
    async fn next_events(&mut self) -> Result<Vec<Event>, ServiceError> {
        let mut events = tokio::select! {
            events = self.sources.next(&self.run) => events?,
            () = sleep_until(self.inner, self.run.next_deadline()) => vec![Event::TimePassed],
        };
        while !events.is_empty() && events.len() < MOST_TOGETHER {
            match self.sources.next(&self.run).now_or_never() {
                Some(more) => events.extend(more?),
                None => break,
            }
        }
        Ok(events)
    }

    /// Stores the outcome. Other servers then ignore the run.
    async fn finish(&mut self) -> Result<bool, ServiceError> {
        let Some(end) = self.run.end() else {
            return Ok(false);
        };
        let id = self.run.id();
        let key = keys::run_end(id);
        let mut transaction = self
            .writer
            .fenced()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&end))
            .delete(keys::open_run(id));
        // Announced with the end: any server fires it, and only once.
        let now = self.inner.clock.now();
        if let Some(announced) = announced(&self.record, end.outcome, now) {
            transaction = announced.put_in(transaction);
        }
        let changed = self
            .run
            .statuses()
            .iter()
            .map(|status| status.changed)
            .sum();
        transaction =
            (self.inner.links.reactors).run_finished(transaction, &self.record, &end, changed);
        if let Some(event) = ended_for_reactor(&self.record, &end, now) {
            let key = keys::trigger_event(Uuid::now_v7());
            transaction = transaction.put(key, document::encode(&event));
        }
        let action = AuditAction::new("finish-run")
            .on("run", id)
            .detail("environment", self.record.environment.clone())
            .detail("outcome", end.outcome.as_str())
            .detail("started_by", self.record.by.clone())
            .because(self.record.reason.as_deref());
        transaction = self.inner.links.audit.record_in(transaction, action);
        settle(&*self.inner.store, transaction).await?;
        let over = self.inner.store.get(&keys::run_end(id)).await?.is_some();
        // A run that succeeded is not resumed, so it needs its catalogs no longer.
        if over && end.outcome == RunOutcome::Succeeded {
            self.inner.links.plans.unpin(id, self.run.plan()).await?;
        }
        tracing::info!(run = %id, outcome = %format!("{:?}", end.outcome).to_lowercase(), "a run has ended");
        Ok(over)
    }
}

/// Returns the trigger that a run asks to fire on this outcome.
fn announced(
    record: &RunRecord,
    outcome: RunOutcome,
    at: jiff::Timestamp,
) -> Option<AnnouncedFiring> {
    let hook = record.hooks.of(outcome)?;
    let outcome = format!("{outcome:?}").to_lowercase();
    let reason = format!("run {} of {} {outcome}", record.id, record.by);
    // One firing for each run, whichever server stores it.
    let id = FiringId(record.id.0);
    let (trigger, hosts) = (hook.trigger.clone(), hook.hosts.clone());
    let by = format!("run {}", record.id);
    Some(AnnouncedFiring {
        query: hook.query.clone(),
        ..AnnouncedFiring::beginning(id, trigger, by, hosts, reason, at)
    })
}

/// Returns the entry in the history of the reactor that started the run.
fn ended_for_reactor(
    record: &RunRecord,
    end: &RunEnd,
    at: jiff::Timestamp,
) -> Option<TriggerEvent> {
    let cause = record.causes.first()?;
    Some(TriggerEvent {
        trigger: TriggerName::new(cause.name.as_str()).ok()?,
        at,
        what: TriggerNews::RunEnded {
            by: record.by.clone(),
            run: record.id,
            outcome: end.outcome,
            failed: end.tally.finished() - end.tally.succeeded,
        },
    })
}

async fn sleep_until(inner: &Inner, deadline: Option<jiff::Timestamp>) {
    let Some(deadline) = deadline else {
        return std::future::pending().await;
    };
    let left = deadline.duration_since(inner.clock.now());
    let left = std::time::Duration::try_from(left).unwrap_or_default();
    // Wake up at least every hour, because the clock may jump.
    tokio::time::sleep(left.min(std::time::Duration::from_secs(3_600))).await;
}
