//! Explains a decision: the rule that allows it, or why each rule does not.

use std::collections::BTreeSet;

use bunraku_model::access::{
    AccessHolder, AccessRule, AccessRules, AccessScope, AccessTarget, AccessVerb,
};
use bunraku_model::{EnvironmentName, NodeName};
use bunraku_wire::api::{AccessDecision, RejectedRule};

use super::{Access, Reach, rule_entry};
use crate::ServiceError;
use crate::find_nodes::check_node_query;

impl Access {
    /// Decides like for a request, and says why.
    pub async fn explain(
        &self,
        rules: &AccessRules,
        holder: &AccessHolder<'_>,
        verb: AccessVerb,
        target: &AccessTarget,
    ) -> Result<AccessDecision, ServiceError> {
        let node = match target {
            AccessTarget::Node(node) => Some(node),
            AccessTarget::Everything | AccessTarget::Environment(_) => None,
        };
        let environment = match node {
            Some(node) => self
                .environments_of([node.clone()].into())
                .await?
                .remove(node),
            None => None,
        };
        let (mut decisive, mut others, mut notes) = (None, Vec::new(), Vec::new());
        for rule in rules.rules() {
            if !rule.subject.covers(holder) {
                continue;
            }
            let alone = Reach {
                scopes: vec![rule.scope.clone()],
                found: match (&rule.scope, node) {
                    (AccessScope::Nodes(query), Some(_)) => {
                        let found = self.found_by(query).await?.unwrap_or_default();
                        [(query.clone(), found)].into()
                    }
                    _ => Default::default(),
                },
            };
            let covers = alone.covers(target, environment.as_ref());
            if rule.grants.allows(verb) && covers {
                decisive = decisive.or_else(|| Some(rule_entry(rule)));
                continue;
            }
            let why = reason(rule, verb, target, environment.as_ref());
            others.push(RejectedRule {
                rule: rule_entry(rule),
                why,
            });
        }
        if let (Some(node), None) = (node, &environment) {
            notes.push(format!("node `{node}` does not exist"));
        }
        Ok(AccessDecision {
            is_allowed: decisive.is_some(),
            rule: decisive,
            groups: holder.groups.iter().cloned().collect::<BTreeSet<_>>(),
            others,
            notes,
            environment: environment.map(|name| name.to_string()),
        })
    }
}

/// Returns why a rule about the holder does not allow it.
fn reason(
    rule: &AccessRule,
    verb: AccessVerb,
    target: &AccessTarget,
    environment: Option<&EnvironmentName>,
) -> String {
    if !rule.grants.allows(verb) {
        return format!("it does not grant `{verb}`");
    }
    match (&rule.scope, target) {
        (AccessScope::Nodes(query), _) if check_node_query(query).is_err() => {
            "its query cannot be read".to_owned()
        }
        (AccessScope::Nodes(_), AccessTarget::Node(node)) => {
            format!("its query does not find `{node}`")
        }
        (AccessScope::Environment(_), AccessTarget::Node(node)) => not_in(node, environment),
        (_, AccessTarget::Everything) => "it is limited to a part of the fleet".to_owned(),
        (AccessScope::Nodes(_), AccessTarget::Environment(_)) => {
            "it is limited to nodes, and this is about a whole environment".to_owned()
        }
        _ => "it is limited to another environment".to_owned(),
    }
}

fn not_in(node: &NodeName, environment: Option<&EnvironmentName>) -> String {
    match environment {
        Some(environment) => format!("`{node}` is in the environment `{environment}`"),
        None => format!("`{node}` does not exist"),
    }
}
