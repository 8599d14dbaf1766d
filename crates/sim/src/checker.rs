//! What must hold, whatever happens.
//!
//! - What was acknowledged is not lost: a node's facts are, in the end, those
//!   of its last acknowledged submission or of a later one.
//! - They were compiled: the newest compile of each node is of its facts and
//!   of the newest code.
//! - No node is compiled twice at once.
//! - No node is ever given a catalog that no release names for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::NodeName;

/// What one agent said, and what was acknowledged of it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Said {
    /// The version in its facts at each submission; it only grows.
    pub(crate) versions: Vec<u64>,
    /// The last submission that a server acknowledged.
    pub(crate) acknowledged: Option<usize>,
}

#[derive(Default, Debug)]
struct Notes {
    said: BTreeMap<NodeName, Said>,
    /// Nodes that a release may name; all of them where releases make themselves.
    may_have: BTreeSet<NodeName>,
    targets_seen: usize,
}

/// The handle; clones write into the same notes.
#[derive(Clone, Default, Debug)]
pub struct Checker(Arc<Mutex<Notes>>);

impl Checker {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn says(&self, node: &NodeName, version: u64) -> u64 {
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

    /// A node was given a target: `named` tells whether its release names it.
    pub(crate) fn target(&self, node: &NodeName, named: bool) {
        let mut notes = self.notes();
        notes.targets_seen += 1;
        assert!(
            named,
            "`{node}` was given a catalog that its release does not name"
        );
        assert!(
            notes.may_have.contains(node),
            "`{node}` was given a catalog that nobody released"
        );
    }

    /// How often an agent was given a target: a check that saw none shows nothing.
    pub fn targets_seen(&self) -> usize {
        self.notes().targets_seen
    }

    /// Submissions that were acknowledged.
    pub fn acknowledgements(&self) -> usize {
        let notes = self.notes();
        let acknowledged = notes.said.values().filter_map(|said| said.acknowledged);
        acknowledged.map(|last| last + 1).sum()
    }

    /// In the end a node has these facts.
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
}
