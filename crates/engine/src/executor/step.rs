//! One step: guards, look, decide, act, check, refresh.

use std::borrow::Cow;
use std::time::Instant;

use super::Run;
use crate::access::ReadAccess;
use crate::plan::{Body, KnownOutputs, Step};
use crate::types::{AnyInstance, PendingResource};
use crate::{ApplyResult, Event, FailedAttempt, Reason, ResourceOutcome, Status, StepError};

/// The instance of a step: its own, or one created for this run.
pub(super) enum StepInstance<'a> {
    Own(&'a dyn AnyInstance),
    Made(Box<dyn AnyInstance>),
}

impl StepInstance<'_> {
    pub(super) fn instance(&self) -> &dyn AnyInstance {
        match self {
            Self::Own(instance) => *instance,
            Self::Made(instance) => &**instance,
        }
    }
}

/// The result of one attempt, before it becomes an outcome.
pub(super) struct Attempt {
    pub(super) changes: Vec<crate::Change>,
    pub(super) applied: ApplyResult,
    pub(super) refreshed: bool,
    pub(super) status: Status,
}

impl Run<'_> {
    pub(super) fn access<'s>(&'s self, step: &'s Step, upstream_pending: bool) -> ReadAccess<'s> {
        ReadAccess {
            run: &self.context,
            reference: &step.reference,
            noop: self.licence.is_none(),
            secret: step.secret_outputs,
            upstream_pending,
        }
    }

    /// Runs one step completely. Never panics because of the machine's state.
    pub(super) fn step(
        &self,
        node: u32,
        refreshed_by: Option<u32>,
        upstream_pending: bool,
    ) -> ResourceOutcome {
        let begun = Instant::now();
        let step = &self.plan.steps[node as usize];
        let access = self.access(step, upstream_pending);
        let mut outcome = match self.reason_to_skip(step, &access) {
            Ok(Some(reason)) => self.checked(step, &access, ResourceOutcome::skipped(reason)),
            Ok(None) => self.tries(step, &access, refreshed_by),
            Err(error) => failure(Vec::new(), &error),
        };
        outcome.duration = begun.elapsed();
        outcome
    }

    fn reason_to_skip(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Reason>, StepError> {
        if let Some(schedule) = &step.control.schedule {
            let now = crate::clock::local_now();
            let last = self.schedules.last(&step.reference, &now);
            if let Some(why) = schedule.refusal(&now, last.as_ref()) {
                return Ok(Some(Reason::Guard(why)));
            }
            if !access.noop {
                self.schedules.note(schedule, &step.reference, &now);
            }
        }
        if step.control.has_guards() {
            return self.guarded(step, access);
        }
        Ok(None)
    }

    /// Runs `check_cmd` of a state, which decides its result regardless of the outcome.
    pub(super) fn checked(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
        mut outcome: ResourceOutcome,
    ) -> ResourceOutcome {
        if step.state.is_none() || step.control.check_cmd.is_empty() || self.licence.is_none() {
            return outcome;
        }
        match self.check(step, access) {
            Ok(()) if outcome.status == Status::Failed => {
                outcome.status = if outcome.made_changes() {
                    Status::Changed
                } else {
                    outcome.changes.clear();
                    Status::Unchanged
                };
                outcome.message = Some("check_cmd determined that it succeeded".to_owned());
            }
            Ok(()) => {}
            Err(error) => {
                outcome.changes_made = outcome.made_changes();
                outcome.status = Status::Failed;
                outcome.reasons.clear();
                outcome.message = Some(error.chain());
            }
        }
        outcome
    }

    pub(super) fn prepared<'s>(&self, step: &'s Step) -> Result<StepInstance<'s>, StepError> {
        let declaration = match &step.body {
            Body::Ready(instance) => return Ok(StepInstance::Own(&**instance)),
            Body::Lazy(declaration) => declaration,
        };
        let known = KnownOutputs {
            here: &self.board().outputs,
            registered: &self.plan.registered,
            secret: &self.plan.secret,
            other_nodes: &self.other_nodes,
            labels: &self.context.labels,
        };
        let resolved = known.resolve(declaration)?;
        let known =
            (self.plan.registry.get(step.reference.type_name())).expect("the plan knows the type");
        let instance = std::sync::Arc::clone(known).prepare(&resolved);
        instance
            .map(StepInstance::Made)
            .map_err(|refusal| StepError::because("the outputs do not match", refusal))
    }

    /// Runs `retry`: tries until the result is the wanted one.
    fn tries(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
        refreshed_by: Option<u32>,
    ) -> ResourceOutcome {
        let retry = step.control.retry.as_ref();
        let attempts = retry.map_or(1, |retry| retry.attempts);
        let mut attempt = 1;
        loop {
            let (outcome, interrupted) = self.attempt(step, access, refreshed_by);
            let mut outcome = self.checked(step, access, outcome);
            outcome.attempts = attempt;
            let wanted = retry.is_none_or(|retry| retry.until);
            let satisfied = outcome.result() != Some(!wanted);
            let Some(retry) = retry.filter(|_| !satisfied && attempt < attempts && !interrupted)
            else {
                return outcome;
            };
            let why = outcome
                .message
                .clone()
                .filter(|_| !step.secret_outputs)
                .map_or(Cow::Borrowed("not yet"), |message| {
                    Cow::Owned(self.context.secrets.hide(message))
                });
            let wait = retry.wait(attempt, spread(&step.reference.to_string(), attempt));
            self.context.sink.emit(Event::Retrying(FailedAttempt {
                reference: &step.reference,
                attempt,
                wait,
                why: &why,
            }));
            if self.context.cancellation.sleep(wait) {
                return outcome;
            }
            attempt += 1;
        }
    }

    /// Makes one attempt. The flag is true if the end of the run interrupted it.
    fn attempt(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
        refreshed_by: Option<u32>,
    ) -> (ResourceOutcome, bool) {
        let seen = (self.prepared(step)).and_then(|prepared| {
            let observing = prepared.instance().observe(access)?;
            prepared.instance().verdict(&observing, access.noop)?;
            Ok((prepared, observing))
        });
        let (prepared, observing) = match seen {
            Ok(seen) => seen,
            // Its inputs exist when changes are applied, not when they are only observed.
            Err(error) if access.noop && error.needs_outputs => {
                let mut outcome = ResourceOutcome::new(Status::Pending);
                outcome.message = Some(format!("not known in a noop run: {}", error.chain()));
                return (outcome, false);
            }
            Err(error) => return (failure(Vec::new(), &error), error.interrupted),
        };
        let result = self.act(
            step,
            access,
            prepared.instance(),
            &observing,
            None,
            refreshed_by.is_some(),
        );
        self.outcome(step, prepared.instance(), observing, refreshed_by, result)
    }

    /// Applies and refreshes, or in a noop run reports that it would. `applied` is the
    /// result that a group has produced already.
    pub(super) fn act(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
        instance: &dyn AnyInstance,
        observing: &PendingResource,
        applied: Option<ApplyResult>,
        refresh: bool,
    ) -> Result<Attempt, StepError> {
        let mut attempt = Attempt {
            changes: Vec::new(),
            applied: ApplyResult::default(),
            refreshed: false,
            status: Status::Unchanged,
        };
        // Salt refreshes a watcher only if it had no changes of its own.
        let refresh = (refresh && (step.state.is_none() || observing.changes.is_empty()))
            .then(|| instance.refresh_change(observing))
            .flatten();
        let licence = self.licence.as_ref().filter(|_| !step.control.noop);
        let Some(licence) = licence else {
            attempt.refreshed = refresh.is_some();
            attempt.changes.extend(refresh);
            if !observing.changes.is_empty() || attempt.refreshed {
                attempt.status = Status::Pending;
            } else {
                attempt.applied.message = instance.unchanged_message(observing);
            }
            return Ok(attempt);
        };
        let write_access = licence.write_access(*access);
        if !observing.changes.is_empty() {
            attempt.status = Status::Changed;
            attempt.applied = match applied {
                Some(applied) => applied,
                None => instance.apply(observing, &write_access)?,
            };
            if attempt.applied.no_change {
                attempt.status = Status::Unchanged;
            }
            if step.state.is_none() {
                self.check(step, access)?;
            }
        }
        if let Some(change) = refresh {
            let refreshed = instance.refresh(observing, &write_access)?;
            if !refreshed.no_change {
                attempt.status = Status::Changed;
                attempt.refreshed = true;
                attempt.changes.push(change);
            }
            attempt.applied.message = attempt.applied.message.or(refreshed.message);
            attempt.applied.outputs.extend(refreshed.outputs);
        }
        if attempt.status == Status::Unchanged && attempt.applied.message.is_none() {
            attempt.applied.message = instance.unchanged_message(observing);
        }
        Ok(attempt)
    }

    pub(super) fn outcome(
        &self,
        step: &Step,
        instance: &dyn AnyInstance,
        observing: PendingResource,
        refreshed_by: Option<u32>,
        result: Result<Attempt, StepError>,
    ) -> (ResourceOutcome, bool) {
        let drifted = !observing.changes.is_empty()
            && self.last_applied.had(&step.reference, &step.declared)
            && instance.undoes_drift(&observing);
        let (mut outcome, interrupted) = match result {
            Err(error) => (failure(observing.changes, &error), error.interrupted),
            Ok(attempt) => {
                let mut outcome = ResourceOutcome::new(attempt.status);
                if !attempt.applied.no_change {
                    outcome.changes = observing.changes;
                }
                outcome.changes.extend(attempt.changes);
                outcome.refreshed = attempt.refreshed;
                outcome.message = attempt.applied.message;
                outcome.outputs = attempt.applied.outputs;
                (outcome, false)
            }
        };
        outcome.corrective = drifted;
        if let (true, Some(by)) = (outcome.refreshed, refreshed_by) {
            outcome
                .reasons
                .push(Reason::RefreshedBy(self.plan.reference_of(by).clone()));
        }
        (outcome, interrupted)
    }
}

pub(super) fn failure(changes: Vec<crate::Change>, error: &StepError) -> ResourceOutcome {
    ResourceOutcome {
        changes,
        changes_made: error.changes_made,
        message: Some(error.chain()),
        outputs: error.outputs.clone(),
        ..ResourceOutcome::new(Status::Failed)
    }
}

/// Returns a fraction for a resource and an attempt, the same every time: neighbours
/// are spread, and a run can be repeated.
fn spread(reference: &str, attempt: u32) -> f64 {
    let id = bunraku_model::ContentId::of(format!("{reference} {attempt}").as_bytes());
    f64::from(id.as_bytes()[0]) / 255.0
}
