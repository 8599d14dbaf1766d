//! Which nodes an operator permits something: by name, by pattern, by certificate, or by query.
//!
//! The four forms never overlap, because names contain neither `*`, `?`, `[`, `=` nor `{`.
//! A query is answered by an index that is not in this crate, so [`NodeMatcher::matches`] leaves
//! it to the caller.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Glob, NodeName};

/// The longest text of a matcher.
const LONGEST: usize = 4_096;

/// One entry of a list of permitted nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeMatcher {
    /// `web-1.example.com`
    Name(NodeName),
    /// `web-*.example.com`; `*` is every node.
    Pattern(String),
    /// `pp_role=web`: an extension of the node's certificate.
    Certificate { extension: String, value: String },
    /// `nodes { facts.role = "web" }`
    Query(String),
}

/// The reason why a text does not describe nodes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` does not describe nodes: {why}")]
pub struct InvalidNodeMatcher {
    text: String,
    why: &'static str,
}

impl NodeMatcher {
    /// Parses a list: matchers separated by commas, or one query.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, InvalidNodeMatcher> {
        if text.contains('{') {
            return Ok(vec![text.parse()?]);
        }
        text.split(',').map(str::parse).collect()
    }

    /// Returns whether the name or certificate matches. `None` if only a query can tell.
    pub fn matches(&self, name: &NodeName, extensions: &BTreeMap<String, String>) -> Option<bool> {
        match self {
            Self::Name(known) => Some(known == name),
            Self::Pattern(pattern) => Some(Glob::with_sets(pattern).matches(name.as_str())),
            Self::Certificate { extension, value } => {
                Some(extensions.get(extension) == Some(value))
            }
            Self::Query(_) => None,
        }
    }
}

impl FromStr for NodeMatcher {
    type Err = InvalidNodeMatcher;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let wrong = |why| InvalidNodeMatcher {
            text: trimmed.chars().take(100).collect(),
            why,
        };
        if trimmed.len() > LONGEST {
            return Err(wrong("it is longer than 4096 characters"));
        }
        if trimmed.chars().any(|character| character == '\0') {
            return Err(wrong("it contains a null character"));
        }
        if trimmed.contains('{') {
            return Ok(Self::Query(trimmed.to_owned()));
        }
        if let Some((extension, value)) = trimmed.split_once('=') {
            let (extension, value) = (extension.trim(), value.trim());
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._".contains(&byte);
            if extension.is_empty() || !extension.bytes().all(allowed) {
                return Err(wrong(
                    "the part before `=` must name a certificate extension, such as `pp_role`",
                ));
            }
            if value.is_empty() || value.chars().any(char::is_control) {
                return Err(wrong(
                    "the part after `=` must be the value of the extension",
                ));
            }
            return Ok(Self::Certificate {
                extension: extension.to_owned(),
                value: value.to_owned(),
            });
        }
        if trimmed.contains(['*', '?', '[']) {
            let allowed = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_*?[]!".contains(&byte)
            };
            if !trimmed.bytes().all(allowed) {
                return Err(wrong(
                    "a pattern has the characters of names, and `*`, `?` and `[…]`",
                ));
            }
            return Ok(Self::Pattern(trimmed.to_owned()));
        }
        NodeName::new(trimmed)
            .map(Self::Name)
            .map_err(|_| wrong("write a name, a pattern (`web-*`), a certificate extension (`pp_role=web`) or a query (`nodes { … }`)"))
    }
}

impl fmt::Display for NodeMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Pattern(text) | Self::Query(text) => f.write_str(text),
            Self::Certificate { extension, value } => write!(f, "{extension}={value}"),
        }
    }
}

impl From<NodeName> for NodeMatcher {
    fn from(name: NodeName) -> Self {
        Self::Name(name)
    }
}

impl Serialize for NodeMatcher {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeMatcher {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(matcher: &str, name: &str, role: &str) -> Option<bool> {
        let extensions = BTreeMap::from([("pp_role".to_owned(), role.to_owned())]);
        let matcher: NodeMatcher = matcher.parse().expect("a matcher");
        assert_eq!(matcher.to_string().parse(), Ok(matcher.clone()));
        matcher.matches(&NodeName::new(name).expect("a name"), &extensions)
    }

    #[test]
    fn nodes_are_named_by_name_pattern_or_certificate() {
        assert_eq!(matches("web-1", "web-1", ""), Some(true));
        assert_eq!(matches("web-1", "web-10", ""), Some(false));
        assert_eq!(
            matches("web-*.example.com", "web-1.example.com", ""),
            Some(true)
        );
        assert_eq!(
            matches("web-*.example.com", "web-1.example.com.evil", ""),
            Some(false)
        );
        assert_eq!(matches("*", "anything", ""), Some(true));
        assert_eq!(matches("pp_role=web", "x", "web"), Some(true));
        assert_eq!(matches("pp_role=web", "x", "web2"), Some(false));
        assert_eq!(matches("pp_zone=web", "x", "web"), Some(false));
        assert_eq!(matches("nodes { facts.role = \"web\" }", "x", ""), None);
    }

    #[test]
    fn a_list_is_split_at_commas_and_a_query_is_not() {
        let list = NodeMatcher::parse_list("a, b-*,pp_role=c").expect("a list");
        assert_eq!(list.len(), 3);
        let query = "nodes { certname in [\"a\", \"b\"] }";
        let list = NodeMatcher::parse_list(query).expect("a query");
        assert_eq!(list, [NodeMatcher::Query(query.to_owned())]);
    }

    #[test]
    fn what_describes_no_nodes_is_refused() {
        let long = "a".repeat(5_000);
        for wrong in [
            "",
            "Web-1",
            "a b",
            "=x",
            "pp_role=",
            "a/*",
            "pp role=x",
            &long,
        ] {
            assert!(wrong.parse::<NodeMatcher>().is_err(), "{wrong:?}");
        }
    }
}
