//! Nodes that an operator permits something, as the value of an option.

use std::str::FromStr;

use bunraku_model::{InvalidNodeMatcher, NodeMatcher};

/// The help of every such option.
pub(crate) const FORMS: &str =
    "Nodes are names, patterns (`web-*`), certificate extensions (`pp_role=web`) or a query
(`nodes { facts.role = \"web\" }`). `*` is every node.";

/// Matchers that are separated by commas, or one query.
#[derive(Clone, Debug)]
pub(crate) struct NodeList(Vec<NodeMatcher>);

impl FromStr for NodeList {
    type Err = InvalidNodeMatcher;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        NodeMatcher::parse_list(text).map(Self)
    }
}

/// The entries of all occurrences of an option.
pub(crate) fn entries(lists: Vec<NodeList>) -> Vec<NodeMatcher> {
    lists.into_iter().flat_map(|list| list.0).collect()
}

/// A list in a few words: `web-1, web-*`, or the number of entries.
pub(crate) fn words(list: &[NodeMatcher]) -> String {
    match list.len() {
        0 => "no node".to_owned(),
        1..=3 => {
            let entries: Vec<String> = list.iter().map(ToString::to_string).collect();
            entries.join(", ")
        }
        count => format!("{count} entries"),
    }
}
