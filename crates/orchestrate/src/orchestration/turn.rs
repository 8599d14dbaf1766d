//! The start of a run: at its due time, and behind the runs that were due before it.
//!
//! Every open run has a key, and the revision of its last write is its place:
//! that of its creation or, for a scheduled run, that of the moment when it
//! became due. So a run that is scheduled for tomorrow delays nobody today. A run
//! begins when no run with an earlier place shares a node with it. No run
//! overtakes another on a node, and because places have a total order, there are
//! no deadlocks.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use bunraku_model::{NodeName, RunId};
use bunraku_plan::run::Event;
use bunraku_store::{Compare, Follow, Revision, settle};
use bunraku_wire::api::approvals::{Approval, DecisionKind};
use jiff::Timestamp;

use super::Inner;
use super::lead::Leader;
use bunraku_control::{ServiceError, document, keys};

/// The value of an open run's key until the run is due.
pub(super) const SCHEDULED: &str = "scheduled";

/// The interval at which waiting runs check the time, because clocks may be adjusted.
const LOOK: Duration = Duration::from_secs(30);

/// The nodes of runs, read once each, because plans do not change.
type KnownNodes = HashMap<RunId, BTreeSet<NodeName>>;

/// Returns whether a run with this place and these nodes may begin.
fn may_begin<'n>(
    own: (Revision, &BTreeSet<NodeName>),
    others: impl IntoIterator<Item = (Revision, &'n BTreeSet<NodeName>)>,
) -> bool {
    let (place, nodes) = own;
    others
        .into_iter()
        .filter(|(other, _)| *other < place)
        .all(|(_, theirs)| nodes.is_disjoint(theirs))
}

impl Inner {
    /// Returns whether no run that was due earlier has any of these nodes.
    async fn is_next(&self, run: RunId, known: &mut KnownNodes) -> Result<bool, ServiceError> {
        let own = keys::open_run(run);
        let open = document::read_all(&*self.store, keys::OPEN_RUNS).await?;
        let Some(place) = open.iter().find(|entry| entry.key == own) else {
            return Ok(true);
        };
        let mut places = Vec::new();
        for entry in &open {
            let queued = entry.value != SCHEDULED.as_bytes() && entry.modified <= place.modified;
            let Some(other) = keys::parse_open_run(&entry.key).filter(|_| queued) else {
                continue;
            };
            if let Entry::Vacant(unknown) = known.entry(other) {
                let plan = self.plan(other).await?;
                unknown.insert(plan.nodes().into_keys().cloned().collect());
            }
            places.push((entry.modified, other));
        }
        let nothing = BTreeSet::new();
        let nodes = known.get(&run).unwrap_or(&nothing);
        let others = places.iter().map(|(place, other)| (*place, &known[other]));
        Ok(may_begin((place.modified, nodes), others))
    }
}

impl Leader<'_> {
    /// Waits until someone has approved the run, if that is required. A rejection, or silence until
    /// the request expires, ends the run. Returns false if fenced.
    pub(super) async fn wait_for_approval(&mut self) -> Result<bool, ServiceError> {
        let Some((id, until)) = self.record.pending_approval() else {
            return Ok(true);
        };
        let (key, until) = (keys::approval(id), until);
        let mut follow = Follow::new(self.inner.store.clone(), key.clone());
        while self.run.outcome().is_none() && !self.run.is_approved() {
            let found = document::read::<Approval>(&*self.inner.store, &key).await?;
            let decision = found.and_then(|found| found.document.decision);
            let left = time_until(until, self.inner.clock.now());
            let event = match (decision, left) {
                (Some(decision), _) if decision.kind == DecisionKind::Approved => {
                    Some(Event::Approved { by: decision.by })
                }
                (Some(decision), _) => {
                    let why = decision
                        .reason
                        .map_or(String::new(), |why| format!(": {why}"));
                    Some(Event::Expired {
                        reason: format!("{} rejected the run{why}", decision.by),
                    })
                }
                (None, None) => Some(Event::Expired {
                    reason: format!("nobody approved the run until {until:.0}"),
                }),
                (None, Some(_)) => self.expired(),
            };
            if let Some(event) = event {
                if self.store_and_do(vec![event]).await?.is_err() {
                    return Ok(false);
                }
                continue;
            }
            tokio::select! {
                followed = follow.next() => {
                    followed?;
                }
                () = tokio::time::sleep(left.unwrap_or(LOOK).min(LOOK)) => {}
                asked = self.next_requests() => {
                    let asked = asked?;
                    if !asked.is_empty() && self.store_and_do(asked).await?.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits until the run is due, and sets its place. Returns false if fenced.
    pub(super) async fn wait_until_due(&mut self) -> Result<bool, ServiceError> {
        let due = match (self.record.due.not_before, self.record.pending_approval()) {
            (Some(due), _) => due,
            (None, Some(_)) => self.record.created,
            (None, None) => return Ok(true),
        };
        while self.run.outcome().is_none() {
            let Some(left) = time_until(due, self.inner.clock.now()) else {
                break;
            };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                asked = self.next_requests() => {
                    let asked = asked?;
                    if !asked.is_empty() && self.store_and_do(asked).await?.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        let key = keys::open_run(self.run.id());
        let transaction = self
            .writer
            .fenced()
            .when(Compare::Value(key.clone(), SCHEDULED.into()))
            .put(key, "");
        // Refused: an earlier leader has already set its place.
        settle(&*self.inner.store, transaction).await?;
        Ok(true)
    }

    /// Waits until no run that was due earlier has a node of this one, or until
    /// the run has expired. Returns false if fenced.
    pub(super) async fn wait_for_turn(&mut self) -> Result<bool, ServiceError> {
        let mut open = Follow::new(self.inner.store.clone(), keys::OPEN_RUNS);
        let mut known = KnownNodes::new();
        while self.run.outcome().is_none() {
            if let Some(expired) = self.expired() {
                return Ok(self.store_and_do(vec![expired]).await?.is_ok());
            }
            let latest = self.record.due.start_before;
            let patience = latest.and_then(|latest| time_until(latest, self.inner.clock.now()));
            tokio::select! {
                followed = open.next() => {
                    followed?;
                    if self.inner.is_next(self.run.id(), &mut known).await? {
                        break;
                    }
                }
                () = tokio::time::sleep(patience.unwrap_or(LOOK)) => {}
                asked = self.next_requests() => {
                    let asked = asked?;
                    if !asked.is_empty() && self.store_and_do(asked).await?.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits for nodes that are away. A run that waited may begin right after a
    /// server start, when nodes are still reconnecting: they get the usual time
    /// to return. The author of a new run learns at once that a node is away.
    pub(super) async fn wait_for_nodes(&mut self) -> Result<bool, ServiceError> {
        let patience = Duration::from_secs(self.record.options.lost_after_seconds);
        let waited = self.inner.clock.now().duration_since(self.record.created);
        let waited = Duration::try_from(waited).unwrap_or_default() > patience;
        if !waited && self.record.due.not_before.is_none() {
            return Ok(true);
        }
        let late = tokio::time::sleep(patience);
        tokio::pin!(late);
        while self.run.outcome().is_none() && self.somebody_is_away() {
            tokio::select! {
                () = &mut late => break,
                asked = self.next_requests() => {
                    let asked = asked?;
                    if !asked.is_empty() && self.store_and_do(asked).await?.is_err() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn somebody_is_away(&self) -> bool {
        let board = &self.sources.board;
        let mut nodes = self.run.plan().steps.iter().map(|step| &step.node);
        nodes.any(|node| {
            let standing = board.node_state(node);
            standing.known && !standing.connected && standing.disabled.is_none()
        })
    }

    /// Returns the event for a run that is too late to begin.
    fn expired(&self) -> Option<Event> {
        let latest = self.record.due.start_before?;
        (latest <= self.inner.clock.now()).then(|| Event::Expired {
            reason: format!("it could not start before {latest}"),
        })
    }

    /// Returns the requests of operators for a run that has not begun; ignores everything else.
    async fn next_requests(&mut self) -> Result<Vec<Event>, ServiceError> {
        let mut events = self.sources.next(&self.run).await?;
        events.retain(|event| {
            matches!(
                event,
                Event::StopRequested { .. } | Event::CancelRequested { .. }
            )
        });
        Ok(events)
    }
}

/// Returns how long to sleep until then; `None` if the time has come.
fn time_until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(then.duration_since(now)).ok()?;
    (!left.is_zero()).then(|| left.min(LOOK))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(numbers: &BTreeSet<u8>) -> BTreeSet<NodeName> {
        numbers
            .iter()
            .map(|number| NodeName::new(format!("n{number}")).expect("a name"))
            .collect()
    }

    proptest! {
        /// Runs arrive, begin and end in any order that the rule allows.
        #[test]
        fn runs_that_share_nodes_never_overlap_never_pass_by_and_all_begin(
            wanted in prop::collection::vec(prop::collection::btree_set(0u8..12, 1..6), 1..30),
            mut dice in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        ) {
            let runs: Vec<(Revision, BTreeSet<NodeName>)> = (1..)
                .map(Revision)
                .zip(wanted.iter().map(nodes))
                .collect();
            let (mut waiting, mut active, mut begun) = (Vec::new(), Vec::new(), Vec::new());
            let mut arriving = 0..runs.len();
            loop {
                let fate = dice.pop().map_or(0, |dice| dice.index(3));
                // Runs arrive while there are dice; then all of them must finish.
                match (fate, arriving.next()) {
                    (_, Some(next)) => waiting.push(next),
                    (_, None) if waiting.is_empty() && active.is_empty() => break,
                    _ => {}
                }
                if fate == 1 && !active.is_empty() || arriving.is_empty() && fate == 0 {
                    active.pop();
                }
                let open: Vec<usize> = active.iter().chain(&waiting).copied().collect();
                let may = |run: &usize| {
                    let others = open.iter().filter(|other| *other != run);
                    let others = others.map(|other| (runs[*other].0, &runs[*other].1));
                    may_begin((runs[*run].0, &runs[*run].1), others)
                };
                let oldest = open.iter().min().copied();
                if let Some(oldest) = oldest.filter(|oldest| waiting.contains(oldest)) {
                    prop_assert!(may(&oldest), "the oldest waits for nobody: no deadlock");
                }
                let next: Vec<usize> = waiting.iter().copied().filter(may).collect();
                for run in next {
                    for other in active.iter().filter(|other| **other != run) {
                        let other: &usize = other;
                        prop_assert!(runs[run].1.is_disjoint(&runs[*other].1), "two on one node");
                    }
                    for older in waiting.iter().filter(|older| **older < run) {
                        prop_assert!(runs[run].1.is_disjoint(&runs[*older].1), "{older} is passed by");
                    }
                    waiting.retain(|waits| *waits != run);
                    active.push(run);
                    begun.push(run);
                }
            }
            prop_assert_eq!(begun.len(), runs.len(), "everybody had a turn");
        }
    }
}
