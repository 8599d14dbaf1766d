//! How many nodes the engines carry, and what to add before that.
//!
//! `docs/scale.md` explains the figures. This is the only place in the code that has them.

use bunraku_control::HistoryPlace;
use bunraku_model::ContentPlace;
use bunraku_wire::api::FleetCapacity;

/// The number of nodes that a cluster carries with content and history in etcd.
///
/// A node whose every run changes something takes up to 0.5 MB: 100 reports of at most 5 KB. So this
/// many take 2.5 GB. Half of etcd's quota of 8 GiB stays free, for deploys that change every node, for
/// history until it is compacted, and for defragmentation.
pub const NODES_WITH_ETCD_ALONE: usize = 5_000;

/// Where a cluster keeps its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Engines {
    pub(crate) content_in_etcd: bool,
    pub(crate) history_in_etcd: bool,
}

impl Engines {
    /// Returns the engines of a fleet with this kind of store, and with these places.
    pub(crate) fn of(store_kind: &str, content: ContentPlace, history: HistoryPlace) -> Self {
        let is_etcd = store_kind == "etcd";
        Self {
            content_in_etcd: is_etcd && content.is_default(),
            history_in_etcd: is_etcd && history == HistoryPlace::Store,
        }
    }

    /// Returns the number of nodes that the engines carry, if it is limited.
    pub(crate) fn carries(self) -> Option<usize> {
        (self.content_in_etcd || self.history_in_etcd).then_some(NODES_WITH_ETCD_ALONE)
    }

    /// Returns what to add, from half of the nodes on that the engines carry.
    pub(crate) fn advice(self, nodes: usize) -> Option<FleetCapacity> {
        let carries = self.carries()?;
        if nodes < carries / 2 {
            return None;
        }
        let missing = [
            (self.content_in_etcd, "S3 for content"),
            (self.history_in_etcd, "PostgreSQL for history"),
        ];
        let add = missing.iter().filter(|(is_missing, _)| *is_missing);
        Some(FleetCapacity {
            nodes,
            carries,
            add: add.map(|(_, engine)| (*engine).to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(engines: Engines, nodes: usize) -> Option<String> {
        engines.advice(nodes).map(|advice| advice.sentence())
    }

    #[test]
    fn advice_begins_at_half_of_what_the_engines_carry() {
        let half = NODES_WITH_ETCD_ALONE / 2;
        let etcd = Engines::of("etcd", ContentPlace::Default, HistoryPlace::Store);
        assert_eq!(etcd.advice(half - 1), None);
        let advice = etcd.advice(half).expect("half of the nodes are there");
        assert!(!advice.is_exceeded());
        assert_eq!(
            advice.sentence(),
            "2500 of the 5000 nodes that this cluster carries without S3 for content and PostgreSQL for history"
        );
        let more = etcd.advice(NODES_WITH_ETCD_ALONE + 1);
        assert!(more.expect("too many").is_exceeded());
    }

    #[test]
    fn only_the_engines_that_are_missing_are_named() {
        let with_content = Engines::of("etcd", ContentPlace::S3, HistoryPlace::Store);
        let advice = sentence(with_content, 4_000).expect("history is in etcd");
        assert!(
            advice.ends_with("without PostgreSQL for history"),
            "{advice}"
        );
        let with_history = Engines::of("etcd", ContentPlace::Default, HistoryPlace::Postgresql);
        let advice = sentence(with_history, 4_000).expect("content is in etcd");
        assert!(advice.ends_with("without S3 for content"), "{advice}");
        let both = Engines::of("etcd", ContentPlace::S3, HistoryPlace::Postgresql);
        assert_eq!(sentence(both, 1_000_000), None);
        let embedded = Engines::of("embedded", ContentPlace::Default, HistoryPlace::Store);
        assert_eq!(sentence(embedded, 1_000_000), None);
    }
}
