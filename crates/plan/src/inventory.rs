//! The known nodes, for sources that name them by pattern or query.

use std::collections::BTreeMap;

use bunraku_model::{Glob, NodeName};

/// The nodes that patterns and queries are resolved against.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// `None` if the nodes are unknown, as without a server.
    pub nodes: Option<Vec<NodeName>>,
    /// The result of each query in the source. A caller with access to facts fills it; see
    /// [`site_queries`](crate::site_queries).
    pub answers: BTreeMap<String, Vec<NodeName>>,
}

impl Inventory {
    pub fn of(nodes: Vec<NodeName>) -> Self {
        Self {
            nodes: Some(nodes),
            answers: BTreeMap::new(),
        }
    }
}

/// A pattern for names: `*` matches any characters and `?` matches one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePattern {
    text: String,
    glob: Glob,
}

impl NodePattern {
    pub fn new(pattern: impl Into<String>) -> Self {
        let text = pattern.into();
        let glob = Glob::with_wildcards(&text);
        Self { text, glob }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_exact(&self) -> bool {
        self.glob.is_literal()
    }

    pub fn matches(&self, name: &str) -> bool {
        self.glob.matches(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_wildcards_and_no_sets() {
        for (pattern, name, fits, is_exact) in [
            ("web-*", "web-1", true, false),
            ("web-?", "web-12", false, false),
            ("web-1", "web-1", true, true),
            ("web-[1]", "web-1", false, true),
        ] {
            let pattern = NodePattern::new(pattern);
            assert_eq!(pattern.matches(name), fits, "{pattern:?} {name}");
            assert_eq!(pattern.is_exact(), is_exact, "{pattern:?}");
        }
    }
}
