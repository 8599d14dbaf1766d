//! The reference model of releases, for tests: one line per node.
//!
//! It knows nothing of maps, blobs, heads and workers.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{CodeId, ContentId, EnvironmentName, NodeName};

use super::choice;

/// Number of nodes that may join.
pub(super) const NODES: usize = 9;

pub(super) fn production() -> EnvironmentName {
    EnvironmentName::new("production").expect("a name")
}

pub(super) fn name(number: usize) -> NodeName {
    NodeName::new(format!("node-{number}")).expect("a name")
}

pub(super) fn code(version: usize) -> CodeId {
    CodeId(format!("v{version:03}"))
}

/// Some code does not compile on some nodes.
pub(super) fn compiles(number: usize, version: usize) -> bool {
    !(number * 7 + version * 3).is_multiple_of(11)
}

/// The nodes that a rule of the model covers.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Covers {
    All,
    Percent(f64, ContentId),
}

/// What the model knows of one moment.
#[derive(Clone, Default, Debug)]
pub(super) struct Snapshot {
    /// The code of each node; nothing for a node that waits for one.
    pub(super) nodes: BTreeMap<usize, Option<usize>>,
    /// The newest rule first.
    pub(super) rules: Vec<(Covers, usize)>,
}

/// The reference model.
#[derive(Default)]
pub(super) struct Model {
    pub(super) deployed: Option<usize>,
    pub(super) versions: usize,
    pub(super) now: Snapshot,
    /// The newest compile of each node: the time and the version.
    pub(super) compiled: BTreeMap<usize, (i64, usize)>,
    /// Released by number, after each step.
    pub(super) history: BTreeMap<u64, Snapshot>,
    /// All code that nodes or rules had, by the release after the step.
    pub(super) had: Vec<(u64, usize)>,
    pub(super) rolled_back: BTreeSet<usize>,
    pub(super) is_auto: bool,
    pub(super) is_held: bool,
}

impl Model {
    pub(super) fn covers(covers: &Covers, number: usize) -> bool {
        match covers {
            Covers::All => true,
            Covers::Percent(percent, last) => {
                let rank = choice::rank(&production(), &name(number));
                rank <= *last && choice::percentile(rank) <= *percent
            }
        }
    }

    /// Returns the code that a node gets if it joins now.
    pub(super) fn for_new_node(&self, number: usize) -> Option<usize> {
        let rules = self.now.rules.iter();
        let mut covering = rules.filter(|(covers, _)| Self::covers(covers, number));
        let version = covering.next()?.1;
        compiles(number, version).then_some(version)
    }

    /// Does what the servers do without being asked.
    pub(super) fn settle(&mut self) {
        if self.is_auto && !self.is_held {
            let mut newest = None;
            for (number, (at, version)) in &self.compiled {
                if self.rolled_back.contains(version) {
                    continue;
                }
                let known = self.now.nodes.get(number).copied().flatten();
                if known != Some(*version) {
                    newest = newest.max(Some((*at, *version)));
                    self.now.nodes.insert(*number, Some(*version));
                }
            }
            if let Some((_, version)) = newest {
                self.now.rules = vec![(Covers::All, version)];
            }
        }
        for number in 0..NODES {
            if let Some(None) = self.now.nodes.get(&number) {
                let version = self.for_new_node(number);
                self.now.nodes.insert(number, version);
            }
        }
    }

    pub(super) fn record(&mut self, release: u64) {
        let codes = self.now.nodes.values().flatten();
        let codes = codes.chain(self.now.rules.iter().map(|(_, version)| version));
        self.had.extend(codes.map(|version| (release, *version)));
        self.history.insert(release, self.now.clone());
    }

    pub(super) fn release(&mut self, chosen: &[usize], covers: Option<Covers>) {
        let newest = chosen.iter().filter_map(|number| self.compiled.get(number));
        let newest = newest.max().copied();
        for number in chosen {
            if let Some((_, version)) = self.compiled.get(number) {
                self.now.nodes.insert(*number, Some(*version));
            }
        }
        let (Some(covers), Some((_, version))) = (covers, newest) else {
            return;
        };
        match covers {
            Covers::All => {
                self.now.rules = vec![(Covers::All, version)];
                let released: BTreeSet<usize> = self
                    .compiled
                    .values()
                    .map(|(_, version)| *version)
                    .collect();
                self.rolled_back.retain(|code| !released.contains(code));
            }
            Covers::Percent(percent, last) => {
                let is_outdated = |(old, old_version): &(Covers, usize)| match old {
                    Covers::All => false,
                    Covers::Percent(old_percent, old_last) => {
                        *old_version == version || (percent >= *old_percent && last >= *old_last)
                    }
                };
                self.now.rules.retain(|rule| !is_outdated(rule));
                self.now
                    .rules
                    .insert(0, (Covers::Percent(percent, last), version));
            }
        }
    }

    /// Returns the code that is rolled back.
    pub(super) fn rollback(&mut self, to: u64) -> BTreeSet<usize> {
        let old = self.history[&to].clone();
        let since = self.had.iter().filter(|(release, _)| *release > to);
        let mut gone: BTreeSet<usize> = since.map(|(_, version)| *version).collect();
        gone.extend(self.now.nodes.values().flatten());
        gone.extend(self.now.rules.iter().map(|(_, version)| version));
        gone.extend(&self.rolled_back);
        let restored = old.nodes.values().flatten();
        for version in restored.chain(old.rules.iter().map(|(_, version)| version)) {
            gone.remove(version);
        }
        self.rolled_back = gone.clone();
        self.now.rules = old.rules;
        let nodes: Vec<usize> = self.now.nodes.keys().copied().collect();
        for number in nodes {
            let known = self.now.nodes[&number];
            let before = old.nodes.get(&number).copied().flatten();
            let rules = self.now.rules.iter();
            let is_covered = rules
                .into_iter()
                .any(|(covers, _)| Self::covers(covers, number));
            let kept = known.filter(|version| !is_covered && !gone.contains(version));
            self.now.nodes.insert(number, before.or(kept));
        }
        self.is_held = true;
        gone
    }
}
