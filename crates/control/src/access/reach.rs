//! What one operator may do with one verb.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::access::{
    AccessHolder, AccessRules, AccessScope, AccessTarget, AccessVerb, ScopeWorld,
};
use bunraku_model::{EnvironmentName, NodeName};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Access;
use crate::ServiceError;
use crate::nodes::environment_of;

/// The most records that are read at once.
const READ_TOGETHER: usize = 32;

/// The scopes of one verb, with the nodes that their queries find.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    pub(super) scopes: Vec<AccessScope>,
    pub(super) found: BTreeMap<String, BTreeSet<NodeName>>,
}

/// One node, as far as scopes depend on it.
struct OneNode<'a> {
    environment: Option<&'a EnvironmentName>,
    found: &'a BTreeMap<String, BTreeSet<NodeName>>,
}

impl ScopeWorld for OneNode<'_> {
    fn environment_of(&self, _: &NodeName) -> Option<EnvironmentName> {
        self.environment.cloned()
    }

    fn finds(&self, query: &str, node: &NodeName) -> bool {
        self.found
            .get(query)
            .is_some_and(|nodes| nodes.contains(node))
    }
}

impl Reach {
    /// Returns whether no rule allows the verb.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Returns whether the verb is allowed without a limit.
    pub fn is_everything(&self) -> bool {
        self.scopes.contains(&AccessScope::Everything)
    }

    pub fn covers_environment(&self, environment: &EnvironmentName) -> bool {
        self.covers(&AccessTarget::Environment(environment.clone()), None)
    }

    /// Returns whether it covers a node that is in this environment.
    pub fn covers_node(&self, node: &NodeName, environment: Option<&EnvironmentName>) -> bool {
        self.covers(&AccessTarget::Node(node.clone()), environment)
    }

    /// Returns whether it covers a target. `environment` is that of a node.
    pub fn covers(&self, target: &AccessTarget, environment: Option<&EnvironmentName>) -> bool {
        let world = OneNode {
            environment,
            found: &self.found,
        };
        self.scopes.iter().any(|scope| scope.covers(target, &world))
    }
}

impl Access {
    /// Returns what a holder may do with a verb. Queries run only if nothing unlimited is granted.
    pub async fn reach(
        &self,
        rules: &AccessRules,
        holder: &AccessHolder<'_>,
        verb: AccessVerb,
    ) -> Result<Reach, ServiceError> {
        let mut reach = Reach {
            scopes: rules.scopes(holder, verb),
            found: BTreeMap::new(),
        };
        if reach.is_everything() {
            return Ok(reach);
        }
        for scope in &reach.scopes {
            if let AccessScope::Nodes(query) = scope
                && !reach.found.contains_key(query)
            {
                let found = self.found_by(query).await?.unwrap_or_default();
                reach.found.insert(query.clone(), found);
            }
        }
        Ok(reach)
    }

    /// Returns the nodes that a scope's query finds, or `None` if it cannot be answered: then the
    /// rule allows nothing.
    pub(super) async fn found_by(
        &self,
        query: &str,
    ) -> Result<Option<BTreeSet<NodeName>>, ServiceError> {
        match self.queries.nodes_matching(query).await {
            Ok(nodes) => Ok(Some(nodes.into_iter().collect())),
            Err(ServiceError::Invalid { message, .. }) => {
                tracing::warn!(query, reason = %message, "the query of an access rule has no answer");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the environments of those nodes that exist.
    pub async fn environments_of(
        &self,
        nodes: BTreeSet<NodeName>,
    ) -> Result<BTreeMap<NodeName, EnvironmentName>, ServiceError> {
        let mut reads = FuturesUnordered::new();
        let mut environments = BTreeMap::new();
        for node in nodes {
            if reads.len() == READ_TOGETHER
                && let Some(found) = reads.next().await
            {
                environments.extend(found?);
            }
            reads.push(self.with_environment(node));
        }
        while let Some(found) = reads.next().await {
            environments.extend(found?);
        }
        Ok(environments)
    }

    async fn with_environment(
        &self,
        node: NodeName,
    ) -> Result<Option<(NodeName, EnvironmentName)>, ServiceError> {
        let environment = environment_of(&*self.store, &node).await?;
        Ok(environment.map(|environment| (node, environment)))
    }
}
