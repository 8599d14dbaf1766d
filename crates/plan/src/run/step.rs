//! The transition of a run: one event in, actions out.

use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::deadlines::Deadline;
use bunraku_wire::api::RunEnding;
use bunraku_wire::api::ordered_runs::{
    Event, OnFailure, RunOutcome, StaleNode, StepIndex, UnavailableNode, UnavailableReason,
};

use super::action::Action;
use super::status::{RunPhase, StepState};

impl Run {
    /// Applies an event. Events without news change nothing.
    pub fn step(&mut self, event: &Event, now: Timestamp) -> Vec<Action> {
        // Another server's clock may be behind, but time does not go back.
        self.now = self.now.max(now);
        let mut actions = Vec::new();
        if self.is_known(event) {
            self.take(event, &mut actions);
            self.advance(&mut actions);
        }
        actions
    }

    fn is_known(&self, event: &Event) -> bool {
        let exists = |step: &StepIndex| step.at() < self.statuses.len();
        match event {
            Event::Started { step }
            | Event::Ended { step, .. }
            | Event::Refused { step, .. }
            | Event::Disabled { step, .. }
            | Event::Away { step }
            | Event::Back { step } => exists(step),
            Event::Begun { unfit } => unfit.iter().all(|unfit| exists(&unfit.step)),
            _ => true,
        }
    }

    fn take(&mut self, event: &Event, actions: &mut Vec<Action>) {
        match event {
            Event::Approved { .. } => self.approval = None,
            Event::Begun { unfit } => self.begin(unfit),
            Event::Expired { reason } => self.expire(reason),
            Event::PlanChanged { nodes } => self.refuse(nodes),
            Event::Started { step } => self.has_started(*step),
            Event::Ended { step, .. } => self.has_ended(*step, event),
            Event::Refused { step, reason } => {
                if self.statuses[step.at()].state == StepState::Starting {
                    self.fail(*step, StepState::NeverStarted, Some(reason.clone()));
                }
            }
            Event::Disabled { step, reason } => {
                let state = &self.statuses[step.at()].state;
                if matches!(state, StepState::Starting | StepState::Waiting) {
                    self.fail(*step, StepState::Disabled, Some(reason.clone()));
                }
            }
            Event::Away { step } => self.is_away(*step),
            Event::Back { step } => self.statuses[step.at()].away = None,
            Event::TimePassed => self.time_passed(actions),
            Event::CheckPassed { gate, check, .. } => self.check_passed(*gate, *check),
            Event::CheckFailed {
                gate,
                check,
                reason,
                ..
            } => self.check_failed(*gate, *check, reason),
            Event::StopRequested { by } => self.stop(format!("{by} stopped the run")),
            Event::CancelRequested { by } => {
                self.cancel(&format!("{by} cancelled the run"), actions)
            }
        }
    }

    fn begin(&mut self, unfit: &[UnavailableNode]) {
        if self.phase != RunPhase::Queued {
            return;
        }
        self.phase = RunPhase::Running;
        self.begun = Some(self.now);
        if let Some(seconds) = self.options.total_timeout_seconds {
            self.deadlines.set(self.now, seconds, Deadline::Whole);
        }
        // Close all of them first, so that each keeps its own reason.
        let mut closed: Vec<(StepIndex, &'static str)> = Vec::new();
        for one in unfit {
            if self.statuses[one.step.at()].is_waiting() {
                let (state, message) = match &one.reason {
                    UnavailableReason::Disabled { reason } => (StepState::Disabled, reason.clone()),
                    UnavailableReason::Lost { reason } => (StepState::Lost, reason.clone()),
                    UnavailableReason::Unknown => (
                        StepState::Lost,
                        "no node with this name has joined".to_owned(),
                    ),
                    UnavailableReason::NoCatalog => (
                        StepState::NeverStarted,
                        "it has no released catalog".to_owned(),
                    ),
                };
                closed.push((one.step, state.name()));
                self.close(one.step, state, Some(message));
                self.failures += 1;
            }
        }
        for (step, word) in &closed {
            self.skip_behind(*step, word);
        }
        // Do not run on only part of a fleet, unless the options tolerate it.
        let many = self.failures > self.options.tolerated(self.statuses.len());
        if many || (!closed.is_empty() && self.options.on_failure == OnFailure::Stop) {
            self.refused = true;
            self.stop("not all nodes are ready".to_owned());
        }
    }

    /// Ends a run whose plan is no longer valid, before anything starts.
    fn refuse(&mut self, nodes: &[StaleNode]) {
        if self.phase != RunPhase::Queued {
            return;
        }
        self.refused = true;
        self.begun = Some(self.now);
        self.phase = RunPhase::Running;
        for stale in nodes {
            let steps = self.plan.nodes().remove(&stale.node).unwrap_or_default();
            for step in steps {
                if self.statuses[step.at()].is_waiting() {
                    let message = Some(stale.reason.clone());
                    self.close(step, StepState::NeverStarted, message);
                    self.failures += 1;
                }
            }
        }
        self.stop("the plan has changed".to_owned());
    }

    fn expire(&mut self, reason: &str) {
        if self.phase == RunPhase::Queued {
            self.expired = true;
            self.stop(reason.to_owned());
        }
    }

    fn has_started(&mut self, step: StepIndex) {
        let status = &mut self.statuses[step.at()];
        if status.state != StepState::Starting {
            return;
        }
        status.state = StepState::Running;
        // Leaves the connection state alone, because a report may arrive late.
        status.started = Some(self.now);
        if let Some(seconds) = self.options.node_timeout_seconds {
            // The node enforces the timeout itself. This deadline covers the case that it
            // does not.
            let patience = seconds.saturating_add(self.options.cancel_grace_seconds);
            self.deadlines.set(self.now, patience, Deadline::Work(step));
        }
    }

    fn has_ended(&mut self, step: StepIndex, event: &Event) {
        let Event::Ended {
            ending,
            changed,
            failed,
            message,
            failures,
            drifted,
            ..
        } = event
        else {
            return;
        };
        let status = &mut self.statuses[step.at()];
        if !status.state.is_active() {
            if status.asked.is_some() && !status.ended_by_report {
                status.late = status.late.or(Some(*ending));
            }
            return;
        }
        status.changed = *changed;
        status.failed = *failed;
        status.failures.clone_from(failures);
        status.drifted = *drifted;
        status.ended_by_report = true;
        self.count_drift(*drifted);
        let state = match ending {
            RunEnding::Succeeded => return self.succeed(step),
            RunEnding::Failed => StepState::Failed,
            RunEnding::NotStarted | RunEnding::Expired => StepState::NeverStarted,
            RunEnding::TimedOut => StepState::TimedOut,
            RunEnding::Cancelled => StepState::Cancelled,
            RunEnding::Disabled => StepState::Disabled,
            RunEnding::Interrupted => StepState::Lost,
        };
        self.fail(step, state, message.clone());
    }

    /// Stops the run if too many nodes had drifted.
    fn count_drift(&mut self, drifted: u64) {
        if drifted == 0 {
            return;
        }
        self.drifted += 1;
        let most = self.options.max_drift;
        let most = most.map(|most| most.at_most(self.statuses.len()));
        if most.is_some_and(|most| self.drifted > most) {
            let reason = match self.drifted {
                1 => "1 node had drifted".to_owned(),
                count => format!("{count} nodes had drifted"),
            };
            self.stop_by_rule(reason);
        }
    }

    fn is_away(&mut self, step: StepIndex) {
        let status = &mut self.statuses[step.at()];
        if status.state.is_active() && status.away.is_none() {
            status.away = Some(self.now);
            let seconds = self.options.lost_after_seconds;
            self.deadlines
                .set(self.now, seconds, Deadline::Return(step));
        }
    }

    fn time_passed(&mut self, actions: &mut Vec<Action>) {
        while let Some((at, deadline)) = self.deadlines.pop_due(self.now) {
            match deadline {
                Deadline::Whole => self.end_at_total_timeout(actions),
                Deadline::Soak(gate) => self.soaked(gate, actions),
                Deadline::Check(gate) => self.check_overdue(gate),
                Deadline::Start(step)
                | Deadline::Work(step)
                | Deadline::Return(step)
                | Deadline::Confirm(step) => self.overdue(step, deadline, at, actions),
            }
        }
    }

    fn overdue(
        &mut self,
        step: StepIndex,
        deadline: Deadline,
        at: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let status = &self.statuses[step.at()];
        let starting = status.state == StepState::Starting;
        let running = status.state == StepState::Running;
        let seconds =
            |seconds: u64| SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        match deadline {
            Deadline::Start(_) if starting => {
                let waited = self.options.start_timeout_seconds;
                let message = format!("it did not start within {waited} s");
                self.give_up(step, StepState::NeverStarted, message, actions);
            }
            Deadline::Work(_) if running => {
                let most = self.options.node_timeout_seconds.unwrap_or_default();
                self.give_up(
                    step,
                    StepState::TimedOut,
                    format!("it took longer than {most} s"),
                    actions,
                );
            }
            // Only if the node has been away since then, not if it left again.
            Deadline::Return(_) if starting || running => {
                let away = self.options.lost_after_seconds;
                let still = status.away.is_some_and(|since| {
                    since.checked_add(seconds(away)).is_ok_and(|due| due <= at)
                });
                let message = format!("it was disconnected for {away} s");
                if still && starting {
                    self.give_up(step, StepState::Lost, message, actions);
                } else if still {
                    // The node may finish what it is doing.
                    self.fail(step, StepState::Lost, Some(message));
                }
            }
            Deadline::Confirm(_) if starting || running => {
                let message = "it did not confirm that it stopped".to_owned();
                self.fail(step, StepState::Cancelled, Some(message));
            }
            _ => {}
        }
    }

    /// Gives up a step on this side, and cancels it in case the node is still working on it.
    fn give_up(
        &mut self,
        step: StepIndex,
        state: StepState,
        message: String,
        actions: &mut Vec<Action>,
    ) {
        self.statuses[step.at()].cancel = Some(message.clone());
        actions.push(self.cancel_action(step, &message));
        self.fail(step, state, Some(message));
    }

    fn end_at_total_timeout(&mut self, actions: &mut Vec<Action>) {
        let most = self.options.total_timeout_seconds.unwrap_or_default();
        let message = format!("the run took longer than {most} s");
        self.stop(message.clone());
        for step in (0..).map(StepIndex).take(self.statuses.len()) {
            if self.statuses[step.at()].state.is_active() {
                self.give_up(step, StepState::TimedOut, message.clone(), actions);
            }
        }
    }

    fn succeed(&mut self, step: StepIndex) {
        self.succeeded += usize::from(!self.statuses[step.at()].before);
        self.close(step, StepState::Succeeded, None);
        for next in self.after[step.at()].clone() {
            self.missing[next.at()] -= 1;
            if self.missing[next.at()] == 0 && self.statuses[next.at()].is_waiting() {
                self.ready.insert(next);
            }
        }
    }

    /// Marks a step as succeeded in an earlier run that this one resumes.
    pub(super) fn succeeded_before(&mut self, step: StepIndex) {
        if self.statuses[step.at()].is_waiting() {
            self.statuses[step.at()].before = true;
            self.succeed(step);
        }
    }

    /// Ends a step without success, and skips the steps that wait for it.
    fn fail(&mut self, step: StepIndex, state: StepState, message: Option<String>) {
        let word = state.name();
        let by_request = state == StepState::Cancelled && self.statuses[step.at()].cancel.is_some();
        self.close(step, state, message);
        self.skip_behind(step, word);
        if by_request {
            return;
        }
        self.failures += 1;
        let node = self.plan.steps[step.at()].node.clone();
        if self.succeeded < self.canaries() {
            self.stop(format!("{node}, a canary, {}", state_phrase(word)));
        } else if self.failures > self.options.tolerated(self.statuses.len()) {
            let reason = match self.failures {
                1 => format!("{node} {}", state_phrase(word)),
                count => format!("{count} nodes failed"),
            };
            self.stop(reason);
        }
    }

    fn close(&mut self, step: StepIndex, state: StepState, message: Option<String>) {
        let status = &mut self.statuses[step.at()];
        match status.state {
            StepState::Starting | StepState::Running => self.active -= 1,
            StepState::Waiting => self.ready.remove(step),
            _ => return,
        }
        status.state = state;
        status.ended = (!status.before).then_some(self.now);
        status.message = message;
        self.open[self.plan.steps[step.at()].group as usize - 1] -= 1;
    }

    fn skip_behind(&mut self, step: StepIndex, word: &str) {
        let node = self.plan.steps[step.at()].node.clone();
        let direct = format!("waits for {node}, which {}", state_phrase(word));
        let mut waiting: Vec<(StepIndex, String)> = self.after[step.at()]
            .iter()
            .map(|next| (*next, direct.clone()))
            .collect();
        while let Some((next, reason)) = waiting.pop() {
            if !self.statuses[next.at()].is_waiting() {
                continue;
            }
            let through = self.plan.steps[next.at()].node.clone();
            let reason_behind = format!(
                "waits for {through}, which was skipped because {node} {}",
                state_phrase(word)
            );
            self.close(next, StepState::Skipped { reason }, None);
            waiting.extend(
                self.after[next.at()]
                    .iter()
                    .map(|further| (*further, reason_behind.clone())),
            );
        }
    }

    /// Prevents any further steps from starting.
    pub(super) fn stop(&mut self, reason: String) {
        match self.phase {
            RunPhase::Queued | RunPhase::Running => {}
            _ => return,
        }
        let begun = self.phase == RunPhase::Running;
        self.gate = None;
        self.phase = RunPhase::Stopping {
            reason: reason.clone(),
        };
        let waiting: Vec<StepIndex> = self.in_state(|state| *state == StepState::Waiting);
        for step in waiting {
            let state = if begun {
                StepState::Skipped {
                    reason: reason.clone(),
                }
            } else {
                StepState::Cancelled
            };
            self.close(step, state, None);
        }
    }

    fn cancel(&mut self, reason: &str, actions: &mut Vec<Action>) {
        if matches!(
            self.phase,
            RunPhase::Ended { .. } | RunPhase::Cancelling { .. }
        ) {
            return;
        }
        self.gate = None;
        self.phase = RunPhase::Cancelling {
            reason: reason.to_owned(),
        };
        for step in self.in_state(|state| *state == StepState::Waiting) {
            self.close(step, StepState::Cancelled, None);
        }
        for step in self.in_state(StepState::is_active) {
            self.statuses[step.at()].cancel = Some(reason.to_owned());
            actions.push(self.cancel_action(step, reason));
            let grace = self.options.cancel_grace_seconds;
            self.deadlines.set(self.now, grace, Deadline::Confirm(step));
        }
    }

    fn in_state(&self, wanted: impl Fn(&StepState) -> bool) -> Vec<StepIndex> {
        (0..)
            .map(StepIndex)
            .zip(&self.statuses)
            .filter(|(_, status)| wanted(&status.state))
            .map(|(step, _)| step)
            .collect()
    }

    /// Starts the steps that can start. Ends the run when none is left.
    fn advance(&mut self, actions: &mut Vec<Action>) {
        if self.phase == RunPhase::Running {
            self.open_gate(actions);
            while let Some(step) = self.next_to_start() {
                let status = &mut self.statuses[step.at()];
                status.state = StepState::Starting;
                status.asked = Some(self.now);
                self.active += 1;
                self.started += 1;
                let patience = self.options.start_timeout_seconds;
                self.deadlines
                    .set(self.now, patience, Deadline::Start(step));
                actions.push(self.start_action(step));
            }
            self.stop_if_unavailable();
        }
        let over = self.open.iter().all(|open| *open == 0);
        let can_end = !matches!(self.phase, RunPhase::Ended { .. } | RunPhase::Queued);
        if over && can_end {
            let outcome = self.final_outcome();
            self.phase = RunPhase::Ended { outcome };
            self.ended = Some(self.now);
        }
    }

    fn next_to_start(&mut self) -> Option<StepIndex> {
        let room = self.active < self.options.at_once(self.statuses.len());
        let held = !self.canaries_done && self.started >= self.canaries();
        if !room || held || self.gate.is_some() || !self.has_available() {
            return None;
        }
        let group = self.open_group()?;
        let batch = match self.batch {
            Some(batch) if self.ready.has(group, batch) => batch,
            // The other nodes of this batch finish first.
            Some(_) if self.active > 0 && self.ready.has_batches() => return None,
            _ => self.ready.first_batch(group)?,
        };
        self.batch = Some(batch);
        self.ready.pop(group, batch)
    }

    /// Returns the first group (counted from 0) that is not finished.
    pub(super) fn open_group(&self) -> Option<usize> {
        self.open.iter().position(|open| *open > 0)
    }

    /// Returns how many nodes may run or have failed at any time.
    fn most_unavailable(&self) -> usize {
        let most = self.options.max_unavailable;
        most.map_or(usize::MAX, |most| most.at_most(self.statuses.len()).max(1))
    }

    /// Returns whether another node may become unavailable.
    pub(super) fn has_available(&self) -> bool {
        self.active + self.failures < self.most_unavailable()
    }

    /// Stops a run that can never continue, because nodes that failed stay unavailable.
    fn stop_if_unavailable(&mut self) {
        if self.active == 0
            && self.gate.is_none()
            && !self.has_available()
            && !self.ready.is_empty()
        {
            let (now, most) = (self.failures, self.most_unavailable());
            let reason = format!("unavailable nodes: {now}, and at most {most} may be");
            self.stop_by_rule(reason);
        }
    }

    pub(super) fn canaries(&self) -> usize {
        (self.options.canary as usize).min(self.statuses.len())
    }

    fn final_outcome(&self) -> RunOutcome {
        let all = self
            .statuses
            .iter()
            .all(|status| status.state == StepState::Succeeded);
        match (all, self.failures) {
            _ if self.expired => RunOutcome::Expired,
            (true, _) => RunOutcome::Succeeded,
            _ if self.refused && self.started == 0 => RunOutcome::Refused,
            (false, 0) if self.stopped_by_rule => RunOutcome::Failed,
            (false, 0) => RunOutcome::Cancelled,
            _ => RunOutcome::Failed,
        }
    }
}

/// Returns the phrase that follows the name of a node: `failed`, `was lost`.
fn state_phrase(word: &str) -> String {
    match word {
        "failed" | "timed out" | "never started" => word.to_owned(),
        "lost" | "disabled" | "cancelled" | "skipped" => format!("was {word}"),
        other => format!("is {other}"),
    }
}
