//! Gates: the pauses of a run between its canaries and the rest, and between batches.
//!
//! At a gate nothing runs and nothing starts. First the soak time passes, then every check has to
//! pass. A check that fails or takes too long stops the run. The transitions are pure: servers and
//! operators report results of checks as events, and time is a parameter, so that any server can
//! take over at any entry of the log.

use bunraku_wire::api::ordered_runs::{RolloutCheck, RunWait};
use jiff::{SignedDuration, Timestamp};

use super::Run;
use super::action::Action;
use super::deadlines::Deadline;
use super::status::RunPhase;

/// A gate that is not passed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Gate {
    pub(super) number: u32,
    pub(super) state: GateState,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum GateState {
    Soaking {
        until: Timestamp,
    },
    /// Which checks have passed, and the time until which all of them must have.
    Checking {
        passed: Vec<bool>,
        until: Timestamp,
    },
}

impl Run {
    /// Opens a gate if the canaries, or a batch, are done and more nodes are waiting.
    pub(super) fn open_gate(&mut self, actions: &mut Vec<Action>) {
        if self.phase != RunPhase::Running || self.gate.is_some() || self.active > 0 {
            return;
        }
        let more = !self.ready.is_empty();
        let mut wanted = self.options.gate_each_batch && self.is_batch_over();
        if !self.canaries_done && self.succeeded >= self.canaries() {
            if self.canaries() > 0 && more {
                wanted = true;
            } else {
                self.canaries_done = true;
            }
        }
        match (wanted, self.options.has_gates()) {
            (true, true) => self.begin_gate(actions),
            (true, false) => self.pass_gate(),
            (false, _) => {}
        }
    }

    fn begin_gate(&mut self, actions: &mut Vec<Action>) {
        self.gates += 1;
        let (number, soak) = (self.gates, self.options.soak_seconds);
        let until = later(self.now, soak);
        self.gate = Some(Gate {
            number,
            state: GateState::Soaking { until },
        });
        if soak == 0 {
            return self.begin_checks(actions);
        }
        self.deadlines.set(self.now, soak, Deadline::Soak(number));
    }

    /// The soak time has passed.
    pub(super) fn soaked(&mut self, number: u32, actions: &mut Vec<Action>) {
        let soaking = matches!(&self.gate, Some(Gate { number: open, state: GateState::Soaking { until } })
            if *open == number && *until <= self.now);
        if soaking {
            self.begin_checks(actions);
        }
    }

    fn begin_checks(&mut self, actions: &mut Vec<Action>) {
        let checks = self.options.checks.len();
        if checks == 0 {
            return self.pass_gate();
        }
        let seconds = self.options.check_timeout_seconds;
        let until = later(self.now, seconds);
        if let Some(gate) = &mut self.gate {
            gate.state = GateState::Checking {
                passed: vec![false; checks],
                until,
            };
            let deadline = Deadline::Check(gate.number);
            self.deadlines.set(self.now, seconds, deadline);
        }
        actions.extend(self.open_checks());
    }

    /// Returns the checks that servers have to perform now.
    pub(super) fn open_checks(&self) -> Vec<Action> {
        let Some(Gate {
            number,
            state: GateState::Checking { passed, .. },
        }) = &self.gate
        else {
            return Vec::new();
        };
        let open = (0..).zip(passed).filter(|(_, passed)| !**passed);
        let open = open.filter(|(check, _)| {
            let what = self.options.checks.get(*check as usize);
            what.is_some_and(RolloutCheck::is_automatic)
        });
        open.map(|(check, _)| Action::Check {
            gate: *number,
            check,
        })
        .collect()
    }

    pub(super) fn check_passed(&mut self, gate: u32, check: u32) {
        let all = match &mut self.gate {
            Some(Gate {
                number,
                state: GateState::Checking { passed, .. },
            }) if *number == gate => {
                if let Some(passed) = passed.get_mut(check as usize) {
                    *passed = true;
                }
                passed.iter().all(|passed| *passed)
            }
            _ => false,
        };
        if all {
            self.pass_gate();
        }
    }

    pub(super) fn check_failed(&mut self, gate: u32, check: u32, reason: &str) {
        let open = self.gate.as_ref().is_some_and(|open| {
            open.number == gate && matches!(open.state, GateState::Checking { .. })
        });
        let what = self.options.checks.get(check as usize);
        if let Some(what) = what.filter(|_| open) {
            let message = format!("the check `{what}` failed: {reason}");
            self.stop_by_rule(message);
        }
    }

    /// The time for the checks of a gate has passed.
    pub(super) fn check_overdue(&mut self, number: u32) {
        let Some(Gate {
            number: open,
            state: GateState::Checking { passed, until },
        }) = &self.gate
        else {
            return;
        };
        if *open != number || *until > self.now {
            return;
        }
        let missing = passed.iter().position(|passed| !passed);
        let what = missing.and_then(|check| self.options.checks.get(check));
        if let Some(what) = what {
            let seconds = self.options.check_timeout_seconds;
            let message = format!("the check `{what}` did not pass within {seconds} s");
            self.stop_by_rule(message);
        }
    }

    fn pass_gate(&mut self) {
        self.gate = None;
        self.canaries_done |= self.succeeded >= self.canaries();
        if self.is_batch_over() {
            self.batch = None;
        }
    }

    /// Stops the run because of a rule: it counts as failed even if no node has failed.
    pub(super) fn stop_by_rule(&mut self, reason: String) {
        self.stopped_by_rule = true;
        self.stop(reason);
    }

    /// Returns whether the current batch has run and has nothing left that could start.
    fn is_batch_over(&self) -> bool {
        let group = self.open_group();
        self.active == 0
            && self.ready.has_batches()
            && self.batch.is_some_and(|batch| {
                group.is_some_and(|group| !self.ready.has(group, batch)) && !self.ready.is_empty()
            })
    }

    /// Returns what the run is waiting for.
    pub fn waits(&self) -> Vec<RunWait> {
        let mut waits = Vec::new();
        match self.phase {
            RunPhase::Queued => waits.push(match &self.approval {
                Some((approval, until)) => RunWait::Approval {
                    approval: approval.clone(),
                    until: *until,
                },
                None => RunWait::Turn,
            }),
            RunPhase::Ended { .. } => {}
            _ => {
                self.gate_waits(&mut waits);
                if self.active > 0 {
                    waits.push(RunWait::Nodes {
                        running: self.active,
                    });
                }
                if self.phase == RunPhase::Running && self.gate.is_none() && !self.ready.is_empty()
                {
                    if !self.has_available() {
                        waits.push(RunWait::Unavailable {
                            nodes: self.failures,
                        });
                    }
                    let batches = self.ready.has_batches() && self.active > 0;
                    if let (Some(batch), true) = (self.batch, batches) {
                        waits.push(RunWait::Batch {
                            batch: self.ready.batch_name(batch).to_owned(),
                        });
                    }
                }
            }
        }
        waits
    }

    fn gate_waits(&self, waits: &mut Vec<RunWait>) {
        match &self.gate {
            None => {}
            Some(Gate {
                number,
                state: GateState::Soaking { until },
            }) => waits.push(RunWait::Soak {
                gate: *number,
                until: *until,
            }),
            Some(Gate {
                number,
                state: GateState::Checking { passed, until },
            }) => {
                let open = (0..).zip(passed).zip(&self.options.checks);
                let open = open.filter(|((_, passed), _)| !**passed);
                waits.extend(open.map(|((check, _), what)| RunWait::Check {
                    gate: *number,
                    check,
                    what: what.clone(),
                    until: *until,
                }));
            }
        }
    }
}

fn later(now: Timestamp, seconds: u64) -> Timestamp {
    let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
