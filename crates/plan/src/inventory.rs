//! Which nodes there are, for sources that name them by pattern or query.

use std::collections::BTreeMap;

use bunraku_model::NodeName;

/// The nodes that patterns and queries are answered from.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// `None`: nobody knows, as without a server.
    pub nodes: Option<Vec<NodeName>>,
    /// What each query of the source found. Whoever has facts answers them:
    /// see [`site_queries`](crate::site_queries).
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

/// A name with `*` for any characters and `?` for one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePattern(String);

impl NodePattern {
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_exact(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    pub fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name.as_bytes())
    }
}

/// Without recursion: the last `*` is where a mismatch goes back to.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((after, covered)) => {
                    at = after;
                    from = covered + 1;
                    star = Some((after, covered + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, fits) in [
            ("web-*", "web-1", true),
            ("web-*", "db-1", false),
            ("*", "", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.example.org", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("web-?", "web-12", false),
            ("web-??", "web-12", true),
        ] {
            assert_eq!(
                NodePattern::new(pattern).matches(name),
                fits,
                "{pattern} {name}"
            );
        }
    }
}
