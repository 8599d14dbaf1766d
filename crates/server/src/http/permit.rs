//! What the rules allow the operator who sent a request.
//!
//! The access check creates one [`Permit`] per request, from the rules as they are in the store.
//! Handlers of endpoints that are about [`ScopePlace::Each`] ask it about everything that they
//! touch. One that answers without asking is a bug, and its reply is not sent.
//!
//! [`ScopePlace::Each`]: bunraku_wire::endpoints::ScopePlace::Each

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_control::access::{Access, KnownRules, OperatorIdentity, Reach};
use bunraku_model::NodeName;
use bunraku_model::access::{AccessTarget, AccessVerb};
use bunraku_wire::endpoints::{Needs, ScopePlace};
use futures::future::BoxFuture;

use super::reply::ErrorReply;

/// The most nodes that a refusal names.
const NAMED: usize = 5;

/// The rules for one request of an operator.
#[derive(Clone)]
pub(crate) struct Permit(Arc<PermitState>);

struct PermitState {
    access: Access,
    known: Arc<KnownRules>,
    operator: OperatorIdentity,
    /// `true` if everything is allowed, whatever the rules say.
    is_recovery: bool,
    was_asked: AtomicBool,
}

impl Permit {
    pub(crate) fn new(access: &Access, known: Arc<KnownRules>, operator: OperatorIdentity) -> Self {
        Self(Arc::new(PermitState {
            access: access.clone(),
            known,
            operator,
            is_recovery: false,
            was_asked: AtomicBool::new(false),
        }))
    }

    /// A permit for everything, for root on a server who repairs the rules.
    pub(crate) fn for_recovery(
        access: &Access,
        known: Arc<KnownRules>,
        operator: OperatorIdentity,
    ) -> Self {
        Self(Arc::new(PermitState {
            access: access.clone(),
            known,
            operator,
            is_recovery: true,
            was_asked: AtomicBool::new(false),
        }))
    }

    pub(crate) fn rules(&self) -> &KnownRules {
        &self.0.known
    }

    pub(crate) fn operator(&self) -> &OperatorIdentity {
        &self.0.operator
    }

    /// Returns whether a handler asked what is allowed.
    pub(crate) fn was_asked(&self) -> bool {
        self.0.was_asked.load(Ordering::Relaxed)
    }

    /// Returns what the operator may do with a verb.
    pub(crate) async fn reach(&self, verb: AccessVerb) -> Result<Reach, ErrorReply> {
        let state = &*self.0;
        state.was_asked.store(true, Ordering::Relaxed);
        let holder = state.operator.holder();
        let reach = state.access.reach(&state.known.rules, &holder, verb);
        Ok(reach.await?)
    }

    /// Returns whether the operator may do this everywhere.
    pub(crate) async fn is_everything(&self, verb: AccessVerb) -> Result<bool, ErrorReply> {
        Ok(self.0.is_recovery || self.reach(verb).await?.is_everything())
    }

    /// Checks what an endpoint's definition needs. `target` is what the path names.
    pub(crate) async fn check(
        &self,
        needs: Needs,
        target: Option<AccessTarget>,
    ) -> Result<(), ErrorReply> {
        let state = &*self.0;
        if state.is_recovery {
            return Ok(());
        }
        let holder = state.operator.holder();
        match (needs.place, target) {
            (ScopePlace::Everything, _) => {
                self.require(needs.verb, vec![AccessTarget::Everything])
                    .await
            }
            (ScopePlace::Environment | ScopePlace::Node, Some(target)) => {
                self.require(needs.verb, vec![target]).await
            }
            // The endpoint refuses a name that is not valid.
            (ScopePlace::Environment | ScopePlace::Node, None) => Ok(()),
            (ScopePlace::Each, target) => {
                if state.known.rules.scopes(&holder, needs.verb).is_empty() {
                    let about = target.unwrap_or(AccessTarget::Everything);
                    return Err(self.refusal(needs.verb, &[about]));
                }
                Ok(())
            }
        }
    }

    /// Refuses unless the operator may do this to all of the targets.
    pub(crate) async fn require(
        &self,
        verb: AccessVerb,
        targets: Vec<AccessTarget>,
    ) -> Result<(), ErrorReply> {
        let reach = self.reach(verb).await?;
        if self.0.is_recovery || reach.is_everything() {
            return Ok(());
        }
        let targets: BTreeSet<AccessTarget> = targets.into_iter().collect();
        let nodes = targets.iter().filter_map(|target| match target {
            AccessTarget::Node(node) => Some(node.clone()),
            AccessTarget::Everything | AccessTarget::Environment(_) => None,
        });
        let nodes = nodes.collect();
        let environments = self.0.access.environments_of(nodes).await?;
        let environment_of = |target: &AccessTarget| match target {
            AccessTarget::Node(node) => environments.get(node),
            AccessTarget::Everything | AccessTarget::Environment(_) => None,
        };
        let missing: Vec<AccessTarget> = targets
            .into_iter()
            .filter(|target| !reach.covers(target, environment_of(target)))
            .collect();
        match missing.as_slice() {
            [] => Ok(()),
            missing => Err(self.refusal(verb, missing)),
        }
    }

    /// Like [`Permit::require`], for nodes.
    pub(crate) fn require_nodes<'a>(
        &'a self,
        verb: AccessVerb,
        nodes: impl IntoIterator<Item = &'a NodeName>,
    ) -> BoxFuture<'a, Result<(), ErrorReply>> {
        let targets = nodes.into_iter().cloned().map(AccessTarget::Node);
        Box::pin(self.require(verb, targets.collect()))
    }

    /// Returns those of the nodes that the operator may view, or `None` for all.
    pub(crate) async fn viewed_nodes(
        &self,
        nodes: BTreeSet<NodeName>,
    ) -> Result<Option<BTreeSet<NodeName>>, ErrorReply> {
        let reach = self.reach(AccessVerb::View).await?;
        if reach.is_everything() {
            return Ok(None);
        }
        let environments = self.0.access.environments_of(nodes.clone()).await?;
        let is_viewed = |node: &NodeName| reach.covers_node(node, environments.get(node));
        Ok(Some(nodes.into_iter().filter(is_viewed).collect()))
    }

    /// The refusal of something that the operator named. It says nothing about whether it exists.
    pub(crate) fn refusal(&self, verb: AccessVerb, missing: &[AccessTarget]) -> ErrorReply {
        let name = &self.0.operator.name;
        let what = match missing {
            [AccessTarget::Everything] | [] => "for this".to_owned(),
            targets => {
                let named: Vec<String> = targets.iter().take(NAMED).map(in_words).collect();
                let more = match targets.len().saturating_sub(NAMED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("on {}{more}", named.join(", "))
            }
        };
        let scope = match missing {
            [AccessTarget::Environment(environment)] => format!(" --environment {environment}"),
            [AccessTarget::Node(node)] => format!(" --nodes 'nodes {{ certname = \"{node}\" }}'"),
            [AccessTarget::Everything] | [] => String::new(),
            _ => " --environment ENVIRONMENT".to_owned(),
        };
        let message = format!("`{name}` needs `{verb}` {what}");
        let hint = format!("an administrator can run `bunraku access grant {name} {verb}{scope}`");
        ErrorReply::forbidden(&message).with_hint(hint)
    }
}

fn in_words(target: &AccessTarget) -> String {
    match target {
        AccessTarget::Everything => "everything".to_owned(),
        AccessTarget::Environment(environment) => format!("the environment `{environment}`"),
        AccessTarget::Node(node) => format!("`{node}`"),
    }
}
