//! Chooses the nodes of a release. Pure.

use bunraku_model::{ContentId, EnvironmentName, NodeName};

/// Chooses a percentage of the nodes, rounded up, always in the same order: a
/// node chosen at 10 % is also chosen at 20 %. The order is that of a hash of
/// the environment's and the node's name. So it favours no node, is the same on
/// every server, and differs between environments.
pub(crate) fn percentage<'a>(
    environment: &EnvironmentName,
    percent: f64,
    nodes: impl IntoIterator<Item = &'a NodeName>,
) -> Vec<NodeName> {
    let mut ranked: Vec<(ContentId, &NodeName)> = nodes
        .into_iter()
        .map(|node| (rank(environment, node), node))
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    let count = how_many(percent, ranked.len());
    ranked
        .into_iter()
        .take(count)
        .map(|(_, node)| node.clone())
        .collect()
}

/// Returns the node's place in the order.
pub(crate) fn rank(environment: &EnvironmentName, node: &NodeName) -> ContentId {
    ContentId::of(format!("{environment}\0{node}").as_bytes())
}

/// Returns the percentage of all possible ranks that are lower than this one.
pub(crate) fn percentile(rank: ContentId) -> f64 {
    let [a, b, c, d, ..] = *rank.as_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX) * 100.0
}

/// Rounds up, so that any percentage above zero includes at least one node.
fn how_many(percent: f64, nodes: usize) -> usize {
    let exact = nodes as f64 * percent.clamp(0.0, 100.0) / 100.0;
    // 30 % of 10 is 3, not the 3.0000000000000004 of floating-point arithmetic.
    (exact - 1e-9).ceil().max(0.0) as usize
}

/// Returns true if the number is a valid percentage.
pub(crate) fn is_percentage(percent: f64) -> bool {
    percent > 0.0 && percent <= 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn environment(name: &str) -> EnvironmentName {
        EnvironmentName::new(name).expect("a name")
    }

    fn names(count: usize) -> Vec<NodeName> {
        (0..count)
            .map(|n| NodeName::new(format!("node-{n}.example.com")).expect("a name"))
            .collect()
    }

    #[test]
    fn half_of_four_is_two_and_a_hundredth_of_four_is_one() {
        let (production, nodes) = (environment("production"), names(4));
        for (percent, count) in [(50.0, 2), (1.0, 1), (100.0, 4), (75.0, 3), (0.0, 0)] {
            assert_eq!(percentage(&production, percent, &nodes).len(), count);
        }
        assert_eq!(percentage(&production, 30.0, &names(10)).len(), 3);
    }

    #[test]
    fn an_invalid_share_is_refused() {
        for percent in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(!is_percentage(percent), "{percent}");
        }
        assert!(is_percentage(0.1) && is_percentage(100.0));
    }

    #[test]
    fn environments_do_not_share_their_first_victims() {
        let nodes = names(200);
        let [one, other] = ["production", "staging"].map(|name| {
            percentage(&environment(name), 10.0, &nodes)
                .into_iter()
                .collect::<BTreeSet<_>>()
        });
        assert_ne!(one, other);
    }

    proptest! {
        #[test]
        fn a_smaller_share_is_part_of_a_larger_one(
            count in 0..300_usize, small in 0.1..100.0_f64, more in 0.0..100.0_f64, turn in 0..300_usize,
        ) {
            let production = environment("production");
            let mut nodes = names(count);
            let large = (small + more).min(100.0);
            let few: BTreeSet<_> = percentage(&production, small, &nodes).into_iter().collect();
            // The order of the nodes makes no difference.
            if count > 0 {
                nodes.rotate_left(turn % count);
            }
            let many: BTreeSet<_> = percentage(&production, large, &nodes).into_iter().collect();
            prop_assert!(few.is_subset(&many));
            prop_assert_eq!(many.len(), percentage(&production, large, &nodes).len());
            let exact = count as f64 * small / 100.0;
            prop_assert!((few.len() as f64) >= exact - 1e-6 && (few.len() as f64) < exact + 1.0);
        }

        #[test]
        fn no_node_loses_its_place_when_others_leave(count in 2..200_usize, percent in 1.0..100.0_f64) {
            let production = environment("production");
            let nodes = names(count);
            let before: Vec<_> = percentage(&production, percent, &nodes);
            // A node that was not chosen leaves: the chosen nodes stay in front.
            let chosen: BTreeSet<_> = before.iter().cloned().collect();
            let rest: Vec<_> = nodes.iter().enumerate()
                .filter(|(n, node)| chosen.contains(node) || n % 2 == 0).map(|(_, node)| node.clone()).collect();
            let after = percentage(&production, 100.0, &rest);
            prop_assert_eq!(&after[..before.len()], &before[..]);
        }
    }
}
