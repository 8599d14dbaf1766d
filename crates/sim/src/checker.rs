//! Invariants that must always hold.
//!
//! - Acknowledged data is not lost: a node's final facts are those of its last
//!   acknowledged submission or of a later one.
//! - Facts are compiled: the newest compile of each node uses its facts and the
//!   newest code.
//! - No node is compiled twice at once.
//! - No node ever receives a catalog that no release names for it, and in the
//!   end each has applied the newest that a release names.
//! - No event of a run is lost or duplicated, and their order stays.
//! - Every run ends as finished, or is reported as unfinished when its machine
//!   is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::{CatalogId, NodeName, NodeRunId, ReleaseNumber};
use bunraku_wire::api::{NumberedEvent, ReportEvent};

/// The submissions of one agent, and which of them were acknowledged.
#[derive(Clone, Default, Debug)]
pub(crate) struct AgentSubmissions {
    /// The version in its facts at each submission; it only grows.
    pub(crate) versions: Vec<u64>,
    /// The last submission that a server acknowledged.
    pub(crate) acknowledged: Option<usize>,
}

/// The catalog that a release names for each node.
pub(crate) type ReleaseMap = Arc<BTreeMap<NodeName, CatalogId>>;

/// The actions of one run on its node.
#[derive(Clone, Debug)]
pub(crate) struct RunActions {
    pub(crate) node: NodeName,
    /// The resources whose events it recorded, in order.
    pub(crate) titles: Vec<String>,
}

#[derive(Default, Debug)]
struct Notes {
    said: BTreeMap<NodeName, AgentSubmissions>,
    /// The nodes that a release may name; all nodes with automatic releases.
    may_have: BTreeSet<NodeName>,
    targets_seen: usize,
    last_target: BTreeMap<NodeName, String>,
    /// Releases never change, so each is read once.
    releases: BTreeMap<ReleaseNumber, ReleaseMap>,
    /// Runs that an agent added to its queue.
    asked: Vec<(NodeName, NodeRunId)>,
    begun: BTreeMap<NodeRunId, RunActions>,
    carried_out: BTreeMap<NodeName, CatalogId>,
    /// Nodes whose machine is lost.
    lost: BTreeSet<NodeName>,
    events_seen: usize,
}

/// The handle; clones write to the same notes.
#[derive(Clone, Default, Debug)]
pub struct Checker(Arc<Mutex<Notes>>);

impl Checker {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_facts(&self, node: &NodeName, version: u64) -> u64 {
        let mut notes = self.notes();
        let said = notes.said.entry(node.clone()).or_default();
        said.versions.push(version);
        (said.versions.len() - 1) as u64
    }

    pub(crate) fn acknowledged(&self, node: &NodeName, number: u64) {
        let mut notes = self.notes();
        let said = notes.said.entry(node.clone()).or_default();
        said.acknowledged = said.acknowledged.max(Some(number as usize));
    }

    pub(crate) fn may_have_a_target(&self, nodes: impl IntoIterator<Item = NodeName>) {
        self.notes().may_have.extend(nodes);
    }

    /// Records that a node received a target: `named` is true if its release names it.
    pub(crate) fn target(&self, node: &NodeName, named: bool, entity_tag: &str) {
        let mut notes = self.notes();
        notes.targets_seen += 1;
        let last = notes.last_target.entry(node.clone()).or_default();
        entity_tag.clone_into(last);
        assert!(
            named,
            "`{node}` was given a catalog that its release does not name"
        );
        assert!(
            notes.may_have.contains(node),
            "`{node}` was given a catalog that nobody released"
        );
    }

    pub(crate) fn release(&self, number: ReleaseNumber) -> Option<ReleaseMap> {
        self.notes().releases.get(&number).cloned()
    }

    pub(crate) fn record_release(
        &self,
        number: ReleaseNumber,
        map: BTreeMap<NodeName, CatalogId>,
    ) -> ReleaseMap {
        let map = Arc::new(map);
        self.notes().releases.insert(number, Arc::clone(&map));
        map
    }

    /// Returns true if this is the last target that the node received.
    pub(crate) fn has_seen(&self, node: &NodeName, entity_tag: &str) -> bool {
        let notes = self.notes();
        notes
            .last_target
            .get(node)
            .is_some_and(|last| last == entity_tag)
    }

    /// Returns how often an agent received a target: a check that saw none proves nothing.
    pub fn targets_seen(&self) -> usize {
        self.notes().targets_seen
    }

    /// Returns the number of acknowledged submissions.
    pub fn acknowledgements(&self) -> usize {
        let notes = self.notes();
        let acknowledged = notes.said.values().filter_map(|said| said.acknowledged);
        acknowledged.map(|last| last + 1).sum()
    }

    /// Checks the final facts of a node.
    pub(crate) fn in_the_end(&self, node: &NodeName, version: Option<u64>) {
        let said = self.notes().said.get(node).cloned().unwrap_or_default();
        let Some(acknowledged) = said.acknowledged else {
            return;
        };
        let least = said.versions[acknowledged];
        assert!(
            version.is_some_and(|version| version >= least),
            "`{node}`: version {least} of its facts was acknowledged, and it has {version:?}"
        );
        assert!(
            said.versions.contains(&version.unwrap_or_default()),
            "`{node}` has facts that it never sent: {version:?}"
        );
    }

    pub(crate) fn record_request(&self, node: &NodeName, run: NodeRunId) {
        self.notes().asked.push((node.clone(), run));
    }

    pub(crate) fn record_start(&self, node: &NodeName, run: NodeRunId) {
        let done = RunActions {
            node: node.clone(),
            titles: Vec::new(),
        };
        let before = self.notes().begun.insert(run, done);
        assert!(before.is_none(), "`{node}` executed run {run} twice");
    }

    pub(crate) fn recorded(&self, run: NodeRunId, title: &str) {
        let mut notes = self.notes();
        let done = notes.begun.get_mut(&run).expect("it has begun");
        done.titles.push(title.to_owned());
    }

    pub(crate) fn finished(&self, node: &NodeName, catalog: CatalogId) {
        self.notes().carried_out.insert(node.clone(), catalog);
    }

    pub(crate) fn applied_catalog(&self, node: &NodeName) -> Option<CatalogId> {
        self.notes().carried_out.get(node).copied()
    }

    pub(crate) fn lost(&self, node: &NodeName) {
        self.notes().lost.insert(node.clone());
    }

    pub(crate) fn is_lost(&self, node: &NodeName) -> bool {
        self.notes().lost.contains(node)
    }

    /// Returns the runs that must have a report.
    pub(crate) fn runs_asked_for(&self) -> Vec<(NodeName, NodeRunId)> {
        self.notes().asked.clone()
    }

    pub(crate) fn runs_begun(&self) -> Vec<(NodeRunId, RunActions)> {
        let notes = self.notes();
        let begun = notes.begun.iter();
        begun.map(|(run, done)| (*run, done.clone())).collect()
    }

    /// Returns the number of report events that were compared with what nodes did.
    pub fn events_seen(&self) -> usize {
        self.notes().events_seen
    }

    /// Compares the servers' record of a run with what its node did.
    pub(crate) fn report(&self, run: NodeRunId, done: &RunActions, events: &[NumberedEvent]) {
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        let wanted: Vec<u64> = (0..events.len() as u64).collect();
        assert_eq!(numbers, wanted, "the numbers of the events of run {run}");
        let mut titles = Vec::new();
        let (mut starts, mut ends) = (0, 0);
        for event in events {
            match &event.event {
                ReportEvent::Started(_) => starts += 1,
                ReportEvent::Finished(_) => ends += 1,
                ReportEvent::Resource(resource) => titles.push(resource.title.clone()),
                ReportEvent::Log(_) => {}
                ReportEvent::Omitted(_) => panic!("run {run}: events were lost, and it says so"),
            }
        }
        self.notes().events_seen += events.len();
        assert_eq!(starts, 1, "run {run} began so often");
        let known = &done.titles;
        let mut unique = titles.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), titles.len(), "run {run}: doubled: {titles:?}");
        if self.is_lost(&done.node) && ends == 0 {
            let common = known
                .iter()
                .zip(&titles)
                .take_while(|(known, text)| known == text);
            assert_eq!(
                common.count(),
                titles.len(),
                "run {run}: {titles:?} of {known:?}"
            );
            return;
        }
        assert_eq!(ends, 1, "run {run} of `{}` ended so often", done.node);
        assert_eq!(
            titles, *known,
            "run {run}: what is reported beside what was done"
        );
    }
}
