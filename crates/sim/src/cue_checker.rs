//! Invariants of triggers, reactors and ordered runs.
//!
//! - A firing that a server acknowledged starts a run on its host, at least once, and not more
//!   often than it reached a server.
//! - A failed resource fires its reactor's trigger exactly once, or its chain ends there.
//! - No chain of triggers is longer than its hops allow.
//! - A step of an ordered run begins only when all nodes before it have succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_model::{FiringId, NodeName, NodeRunId, RunId};
use bunraku_wire::api::triggers::{DEFAULT_TTL, FireReply};
use bunraku_wire::api::{Cause, RunRequest};

use crate::Checker;

/// The trigger of the reactor.
pub(crate) const REACTION: &str = "mend";

#[derive(Default, Debug)]
struct Notes {
    /// How often each firing reached a server.
    arrived: BTreeMap<FiringId, usize>,
    /// Firings that a server acknowledged, with their hosts.
    promised: BTreeSet<(FiringId, NodeName)>,
    /// The requests with which each firing came to a node.
    came: BTreeMap<(FiringId, NodeName), BTreeSet<NodeRunId>>,
    /// Firings of the reactor that came to a node.
    reactions: BTreeSet<FiringId>,
    stopped: usize,
    /// The nodes of each ordered run that have succeeded, by their place in the order.
    succeeded: BTreeMap<RunId, BTreeSet<usize>>,
    steps: usize,
}

/// The handle; clones write to the same notes.
#[derive(Clone, Default, Debug)]
pub struct CueChecker(Arc<Mutex<Notes>>);

impl CueChecker {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arrived(&self, firing: FiringId) {
        *self.notes().arrived.entry(firing).or_default() += 1;
    }

    pub(crate) fn acknowledged(&self, firing: FiringId, reply: FireReply) {
        let mut notes = self.notes();
        match reply {
            FireReply::Fired { hosts, unknown } => {
                assert!(unknown.is_empty(), "firing {firing}: {unknown:?}");
                let promised = hosts.into_iter().map(|host| (firing, host));
                notes.promised.extend(promised);
            }
            FireReply::Stopped { .. } => notes.stopped += 1,
            FireReply::Held { .. } => panic!("firing {firing}: no limit holds it back"),
        }
    }

    /// Records a request that a node accepted.
    pub(crate) fn record_request(&self, node: &NodeName, request: &RunRequest) {
        let mut notes = self.notes();
        for cause in &request.causes {
            let Cause::Trigger(cause) = cause else {
                continue;
            };
            assert!(
                cause.chain.len() <= DEFAULT_TTL as usize,
                "`{node}`: a chain without an end: {:?}",
                cause.chain
            );
            let Some(firing) = cause.firing else { continue };
            if cause.name == REACTION {
                notes.reactions.insert(firing);
            }
            let place = (firing, node.clone());
            notes.came.entry(place).or_default().insert(request.id);
        }
    }

    pub(crate) fn step_begins(&self, node: &NodeName, causes: &[Cause]) {
        let mut notes = self.notes();
        for run in ordered_runs(causes) {
            let place = place(node);
            let succeeded = notes.succeeded.entry(run).or_default();
            assert!(
                (0..place).all(|before| succeeded.contains(&before)),
                "`{node}` begins in ordered run {run}, and only {succeeded:?} are done before it"
            );
            notes.steps += 1;
        }
    }

    pub(crate) fn step_succeeds(&self, node: &NodeName, causes: &[Cause]) {
        let mut notes = self.notes();
        for run in ordered_runs(causes) {
            notes.succeeded.entry(run).or_default().insert(place(node));
        }
    }

    /// Checks all firings, when nothing is left to do.
    pub(crate) fn in_the_end(&self, checker: &Checker) {
        let notes = self.notes();
        for (firing, host) in &notes.promised {
            let came = notes.came.contains_key(&(*firing, host.clone()));
            assert!(
                came || checker.is_lost(host),
                "firing {firing} was acknowledged and never came to `{host}`"
            );
        }
        for ((firing, host), requests) in &notes.came {
            // A reactor's firing is announced once, and never sent again by anybody.
            let most = notes.arrived.get(firing).copied().unwrap_or(1);
            assert!(
                requests.len() <= most,
                "firing {firing} came to `{host}` as {requests:?}, and was fired {most} times"
            );
        }
    }

    /// Compares the reactor's firings with the runs that had a failed resource.
    pub(crate) fn check_reactions(&self, failed_runs: usize, stopped: usize) {
        let reactions = self.notes().reactions.len();
        assert_eq!(
            reactions + stopped,
            failed_runs,
            "{failed_runs} runs had a failed resource, and the reactor fired {reactions} times \
             (and was stopped {stopped} times)"
        );
    }

    /// Returns the number of firings that came to a node.
    pub fn firings(&self) -> usize {
        self.notes().came.len()
    }

    /// Returns the number of firings of the reactor that came to a node.
    pub fn reactions(&self) -> usize {
        self.notes().reactions.len()
    }

    /// Returns the number of chains that the servers ended.
    pub fn stopped(&self) -> usize {
        self.notes().stopped
    }

    /// Returns the number of steps of ordered runs that began.
    pub fn steps(&self) -> usize {
        self.notes().steps
    }
}

fn ordered_runs(causes: &[Cause]) -> impl Iterator<Item = RunId> {
    causes.iter().filter_map(|cause| match cause {
        Cause::Run { run } => Some(*run),
        _ => None,
    })
}

/// Returns the place of a node in the order of every ordered run.
fn place(node: &NodeName) -> usize {
    let number = node.as_str().strip_prefix("node-");
    let number = number.and_then(|number| number.parse().ok());
    number.expect("nodes are numbered")
}
