//! Who may act on what: nodes only with an operator's permission, operators always.
//!
//! Rule: a refusal depends only on the request. It is the same whether the thing exists or not,
//! so a node learns nothing about names that are not its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use bunraku_control::find_nodes::check_node_query;
use bunraku_control::{FindNodes, ServiceError};
use bunraku_model::{NodeMatcher, NodeName, Role};

/// The most entries in one list of permitted nodes.
const MOST_ENTRIES: usize = 1_000;

/// The most hosts that a hint spells out.
const MOST_IN_HINT: usize = 10;

static NO_EXTENSIONS: BTreeMap<String, String> = BTreeMap::new();

/// The caller of a service, as its certificate names it.
#[derive(Clone, Copy, Debug)]
pub struct CueCaller<'a> {
    pub name: &'a NodeName,
    pub role: Role,
    /// The Puppet extensions of its certificate.
    pub extensions: &'a BTreeMap<String, String>,
}

impl<'a> CueCaller<'a> {
    /// A caller whose certificate has no extensions.
    pub fn new(name: &'a NodeName, role: Role) -> Self {
        Self {
            name,
            role,
            extensions: &NO_EXTENSIONS,
        }
    }

    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }
}

/// Evaluates lists of permitted nodes.
#[derive(Clone, Default)]
pub(crate) struct Permissions {
    find_nodes: Option<Arc<dyn FindNodes>>,
}

impl Permissions {
    pub(crate) fn with_queries(find_nodes: Arc<dyn FindNodes>) -> Self {
        Self {
            find_nodes: Some(find_nodes),
        }
    }

    /// Returns whether this node is in the list. An empty list contains nobody.
    pub(crate) async fn contain(
        &self,
        list: &[NodeMatcher],
        caller: CueCaller<'_>,
    ) -> Result<bool, ServiceError> {
        if caller.role != Role::Node {
            return Ok(false);
        }
        self.contain_name(list, caller.name, caller.extensions)
            .await
    }

    async fn contain_name(
        &self,
        list: &[NodeMatcher],
        name: &NodeName,
        extensions: &BTreeMap<String, String>,
    ) -> Result<bool, ServiceError> {
        // Queries last: they cost the most.
        if list
            .iter()
            .any(|entry| entry.matches(name, extensions) == Some(true))
        {
            return Ok(true);
        }
        for entry in list {
            if let (NodeMatcher::Query(query), Some(find)) = (entry, &self.find_nodes)
                && find.nodes_matching(query).await?.contains(name)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks a list that an operator sets.
    pub(crate) fn check(&self, list: &[NodeMatcher]) -> Result<(), ServiceError> {
        if list.len() > MOST_ENTRIES {
            return Err(ServiceError::Invalid {
                message: format!("a list of permitted nodes has at most {MOST_ENTRIES} entries"),
                hint: Some("use patterns such as `web-*`".to_owned()),
            });
        }
        for entry in list {
            if let NodeMatcher::Query(query) = entry {
                if self.find_nodes.is_none() {
                    return Err(ServiceError::invalid(
                        "this server does not answer queries: use names and patterns",
                    ));
                }
                check_node_query(query)?;
            }
        }
        Ok(())
    }
}

/// Adds entries to a list, or replaces it.
pub(crate) fn extend(list: &mut Vec<NodeMatcher>, more: &[NodeMatcher], replace: bool) {
    if replace {
        list.clear();
    }
    list.extend_from_slice(more);
    list.sort();
    list.dedup();
}

/// The refusal of something that no operator permitted, with the command that permits it.
pub(crate) fn refusal(caller: CueCaller<'_>, what: &str, command: &str) -> ServiceError {
    tracing::info!(node = %caller.name, command, "refused: {what}");
    ServiceError::Forbidden {
        message: format!("`{}` may not {what}", caller.name),
        hint: Some(format!("an operator can permit it: `{command}`")),
    }
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Hosts as the value of an option, such as `a,b`.
pub(crate) fn listed(hosts: &[NodeName]) -> String {
    if hosts.len() > MOST_IN_HINT {
        return "HOST,…".to_owned();
    }
    let names: Vec<&str> = hosts.iter().map(NodeName::as_str).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_list_contains_nobody_and_no_list_contains_servers() {
        let permissions = Permissions::default();
        let name = NodeName::new("web-1").expect("a name");
        let all = [NodeMatcher::Pattern("*".to_owned())];
        for (role, list, expected) in [
            (Role::Node, &[][..], false),
            (Role::Node, &all[..], true),
            (Role::Server, &all[..], false),
        ] {
            let contained = permissions.contain(list, CueCaller::new(&name, role)).await;
            assert_eq!(contained.expect("no query"), expected, "{role:?} {list:?}");
        }
        // A query that nothing answers permits nobody.
        let query = [NodeMatcher::Query("nodes { }".to_owned())];
        let contained = permissions.contain(&query, CueCaller::new(&name, Role::Node));
        assert!(!contained.await.expect("no index"));
        assert!(permissions.check(&query).is_err());
    }

    #[test]
    fn hints_survive_a_shell() {
        assert_eq!(quoted("db-master"), "db-master");
        assert_eq!(quoted("refresh (all)"), "'refresh (all)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
