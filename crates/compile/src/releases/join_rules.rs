//! Join rules: the code that a node gets if it joins after a release. Pure.
//!
//! Every release carries the rules that hold from then on. The first rule that
//! covers a node decides. A release to all nodes replaces the rules. A release
//! to some nodes adds a rule in front, so a node that it does not cover gets
//! the previous release. A rollback restores the rules of the release that it
//! returns to.
//!
//! A rule names code, not catalogs: a node that joins later is compiled from
//! that code, whatever is deployed by then.
//!
//! Invariant: whether a percentage covers a node depends on the node's name
//! alone, not on the nodes that joined or left in the meantime.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{CodeId, ContentId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_wire::api::{ReleaseTo, RunMode};
use serde::{Deserialize, Serialize};

use super::choice;

/// Maximum number of rules. Beyond it, the oldest partial releases are forgotten.
const MOST_RULES: usize = 20;

/// The nodes that each query of the rules finds now.
pub(super) type QueryMatches = BTreeMap<String, BTreeSet<NodeName>>;

/// The rules of a release, stored with it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JoinRules {
    /// The newest rule first.
    #[serde(default)]
    pub rules: Vec<JoinRule>,
    /// Code that was rolled back. It is not released automatically until
    /// someone releases it to all nodes again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rolled_back: BTreeSet<CodeId>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct JoinRule {
    /// The release that introduced the rule.
    pub release: ReleaseNumber,
    pub code_id: CodeId,
    pub mode: RunMode,
    #[serde(flatten)]
    pub covers: JoinCoverage,
}

/// The nodes that a rule covers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "covers", rename_all = "snake_case")]
pub(crate) enum JoinCoverage {
    All,
    Percentage {
        percent: f64,
        /// The rank of the last node that the release chose.
        last: ContentId,
    },
    Query {
        query: String,
    },
}

impl JoinCoverage {
    /// Returns the coverage of a release to these nodes. Nodes that were named
    /// one by one say nothing about others.
    pub(super) fn of(
        environment: &EnvironmentName,
        to: &ReleaseTo,
        chosen: &BTreeSet<NodeName>,
    ) -> Option<Self> {
        match to {
            ReleaseTo::Everything => Some(Self::All),
            ReleaseTo::Nodes { .. } => None,
            ReleaseTo::Percentage { percent } if *percent >= 100.0 => Some(Self::All),
            ReleaseTo::Percentage { percent } => Some(Self::Percentage {
                percent: *percent,
                last: (chosen.iter())
                    .map(|node| choice::rank(environment, node))
                    .max()?,
            }),
            ReleaseTo::Query { query } => Some(Self::Query {
                query: query.clone(),
            }),
        }
    }

    fn covers(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
        matches: &QueryMatches,
    ) -> bool {
        match self {
            Self::All => true,
            // Both conditions: a node that the release left out stays out, also
            // if it leaves and joins again. And a percentage of few nodes, which
            // is rounded up, does not cover most of the nodes that join later.
            Self::Percentage { percent, last } => {
                let rank = choice::rank(environment, node);
                rank <= *last && choice::percentile(rank) <= *percent
            }
            Self::Query { query } => matches.get(query).is_some_and(|found| found.contains(node)),
        }
    }

    /// Returns true if this covers every node that the other one covers, or
    /// replaces it.
    fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (
                Self::Percentage { percent, last },
                Self::Percentage {
                    percent: old,
                    last: old_last,
                },
            ) => percent >= old && last >= old_last,
            (Self::Query { query }, Self::Query { query: old }) => query == old,
            _ => false,
        }
    }

    pub(super) fn to(&self) -> ReleaseTo {
        match self {
            Self::All => ReleaseTo::Everything,
            Self::Percentage { percent, .. } => ReleaseTo::Percentage { percent: *percent },
            Self::Query { query } => ReleaseTo::Query {
                query: query.clone(),
            },
        }
    }
}

impl JoinRules {
    /// Returns the rule that decides for a node.
    pub(super) fn rule_for(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
        matches: &QueryMatches,
    ) -> Option<&JoinRule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.covers.covers(environment, node, matches))
    }

    /// Returns the rules after a release.
    pub(super) fn with(&self, rule: JoinRule) -> Self {
        let is_percentage =
            |rule: &JoinRule| matches!(rule.covers, JoinCoverage::Percentage { .. });
        let same_code = |old: &JoinRule| old.code_id == rule.code_id && old.mode == rule.mode;
        let kept = self.rules.iter().filter(|old| {
            // The newest percentage of the same code counts, also if it is smaller.
            let restated = is_percentage(&rule) && is_percentage(old) && same_code(old);
            !restated && !rule.covers.replaces(&old.covers)
        });
        let mut rules: Vec<JoinRule> = std::iter::once(&rule).chain(kept).cloned().collect();
        while rules.len() > MOST_RULES {
            // The last rule covers all nodes, if there is such a rule.
            rules.remove(MOST_RULES - 1);
        }
        Self {
            rules,
            rolled_back: self.rolled_back.clone(),
        }
    }

    /// Returns the rules of an older release, after a rollback to it.
    /// `discarded` is the code that nodes had since, `restored` the code that
    /// the older release names.
    pub(super) fn rolled_back_to(
        &self,
        older: &Self,
        discarded: BTreeSet<CodeId>,
        restored: &BTreeSet<CodeId>,
    ) -> Self {
        let mut rolled_back = self.rolled_back.clone();
        rolled_back.extend(discarded);
        rolled_back.extend(self.codes().cloned());
        rolled_back.retain(|code| !restored.contains(code) && !older.names(code));
        Self {
            rules: older.rules.clone(),
            rolled_back,
        }
    }

    /// Returns the code that new nodes may get.
    pub(super) fn codes(&self) -> impl Iterator<Item = &CodeId> {
        self.rules.iter().map(|rule| &rule.code_id)
    }

    fn names(&self, code: &CodeId) -> bool {
        self.codes().any(|named| named == code)
    }

    pub(super) fn queries(&self) -> BTreeSet<String> {
        let queries = self.rules.iter().filter_map(|rule| match &rule.covers {
            JoinCoverage::Query { query } => Some(query.clone()),
            _ => None,
        });
        queries.collect()
    }

    /// Returns true if nodes get the same under both. The releases that
    /// introduced the rules do not matter.
    pub(super) fn is_same_for_nodes(&self, other: &Self) -> bool {
        let same = |(one, other): (&JoinRule, &JoinRule)| {
            one.code_id == other.code_id && one.mode == other.mode && one.covers == other.covers
        };
        self.rolled_back == other.rolled_back
            && self.rules.len() == other.rules.len()
            && self.rules.iter().zip(&other.rules).all(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn production() -> EnvironmentName {
        EnvironmentName::new("production").expect("a name")
    }

    fn node(number: usize) -> NodeName {
        NodeName::new(format!("node-{number}")).expect("a name")
    }

    fn rule(number: u64, code: &str, covers: JoinCoverage) -> JoinRule {
        JoinRule {
            release: ReleaseNumber(number),
            code_id: CodeId(code.to_owned()),
            mode: RunMode::Enforce,
            covers,
        }
    }

    fn percentage(percent: f64, nodes: usize) -> (JoinCoverage, BTreeSet<NodeName>) {
        let all: Vec<NodeName> = (0..nodes).map(node).collect();
        let chosen: BTreeSet<NodeName> = choice::percentage(&production(), percent, &all)
            .into_iter()
            .collect();
        let to = ReleaseTo::Percentage { percent };
        let covers = JoinCoverage::of(&production(), &to, &chosen).expect("a rule");
        (covers, chosen)
    }

    fn code_for(rules: &JoinRules, number: usize) -> Option<&str> {
        let matches = QueryMatches::new();
        let rule = rules.rule_for(&production(), &node(number), &matches)?;
        Some(&rule.code_id.0)
    }

    #[test]
    fn a_node_outside_every_partial_release_gets_the_one_before() {
        let (half, _) = percentage(50.0, 100);
        let rules = JoinRules::default().with(rule(1, "v1", JoinCoverage::All));
        let rules = rules.with(rule(2, "v2", half));
        let codes: BTreeSet<_> = (100..200).map(|number| code_for(&rules, number)).collect();
        assert_eq!(codes, [Some("v1"), Some("v2")].into());
        let query = JoinCoverage::Query {
            query: "nodes { }".to_owned(),
        };
        let rules = rules.with(rule(3, "v3", query));
        assert_eq!(rules.rules.len(), 3);
        let all = rules.with(rule(4, "v4", JoinCoverage::All));
        assert_eq!(all.rules.len(), 1);
    }

    #[test]
    fn without_an_earlier_release_a_node_outside_gets_nothing() {
        let (few, _) = percentage(1.0, 500);
        let rules = JoinRules::default().with(rule(1, "v1", few));
        let covered = (500..600).filter(|number| code_for(&rules, *number).is_some());
        assert!(covered.count() < 20);
    }

    #[test]
    fn partial_releases_do_not_pile_up() {
        let mut rules = JoinRules::default().with(rule(1, "v0", JoinCoverage::All));
        for number in 1..100 {
            let query = format!("nodes {{ certname = \"{number}\" }}");
            let covers = JoinCoverage::Query { query };
            rules = rules.with(rule(number, "v1", covers));
        }
        assert_eq!(rules.rules.len(), MOST_RULES);
        let last = rules.rules.last().expect("a rule");
        assert_eq!(last.covers, JoinCoverage::All, "the first release stays");
        let small = percentage(10.0, 100).0;
        let rules = JoinRules::default()
            .with(rule(1, "v1", percentage(50.0, 100).0))
            .with(rule(2, "v1", small.clone()));
        assert_eq!(rules.rules.len(), 1, "the newest percentage counts");
        assert_eq!(rules.rules[0].covers, small);
    }

    proptest! {
        #[test]
        fn a_node_that_a_percentage_left_out_stays_out_whenever_it_joins(
            percent in 1.0..99.0_f64, nodes in 1..60_usize,
        ) {
            let (covers, chosen) = percentage(percent, nodes);
            let rules = JoinRules::default().with(rule(1, "v2", covers));
            for number in 0..nodes {
                if !chosen.contains(&node(number)) {
                    prop_assert_eq!(code_for(&rules, number), None);
                }
            }
            let later = (1_000..2_000).filter(|number| code_for(&rules, *number).is_some()).count();
            prop_assert!(later as f64 / 10.0 <= percent + 8.0, "{} of 1000", later);
        }
    }
}
