//! What nodes may fire, and what they learn from the reply.

use bunraku_control::ServiceError;
use bunraku_control::document::{self, Decision};
use bunraku_control::keys;
use bunraku_model::{NodeMatcher, NodeName, TriggerName};
use bunraku_wire::api::triggers::{FireReply, FireTrigger, PermitTrigger, TriggerLimits};

use super::Triggers;
use crate::permission::{self, CueCaller, listed, quoted};

impl Triggers {
    /// Lets nodes fire a trigger, and keeps the rest of its definition.
    pub async fn permit(
        &self,
        trigger: &TriggerName,
        request: &PermitTrigger,
    ) -> Result<(), ServiceError> {
        self.permissions.check(&request.fired_by)?;
        self.permissions.check(&request.hosts)?;
        let key = keys::trigger_limits(trigger);
        document::update(&*self.store, &key, |current: Option<TriggerLimits>| {
            let mut limits = current.unwrap_or_default();
            permission::extend(&mut limits.fired_by, &request.fired_by, request.replace);
            permission::extend(&mut limits.hosts, &request.hosts, request.replace);
            self.permissions.check(&limits.fired_by)?;
            self.permissions.check(&limits.hosts)?;
            Ok(Decision::Write(limits))
        })
        .await?;
        Ok(())
    }

    /// Refuses what no operator permitted. The refusal depends on the request and the definition,
    /// never on which nodes exist.
    pub(super) async fn check_permitted(
        &self,
        trigger: &TriggerName,
        asker: CueCaller<'_>,
        request: &FireTrigger,
        limits: &TriggerLimits,
    ) -> Result<(), ServiceError> {
        let refused = |what: &str| {
            let mut command = format!(
                "bunraku trigger permit {} --fired-by {}",
                quoted(trigger.as_str()),
                asker.name
            );
            if !request.hosts.is_empty() {
                command.push_str(&format!(" --hosts {}", listed(&request.hosts)));
            }
            permission::refusal(asker, what, &command)
        };
        if !self.permissions.contain(&limits.fired_by, asker).await? {
            return Err(refused(&format!("fire `{trigger}`")));
        }
        if request.query.is_some() {
            return Err(ServiceError::Forbidden {
                message: "a node may not choose hosts with its own query".to_owned(),
                hint: Some(format!(
                    "ask an operator to set the hosts with `bunraku trigger define {} --query …`",
                    quoted(trigger.as_str())
                )),
            });
        }
        // Whether a query finds a host is information about that host: such firings are
        // accepted, and the host counts as unknown.
        if !has_query(limits) {
            let denied: Vec<&NodeName> = request
                .hosts
                .iter()
                .filter(|host| !is_named(&limits.hosts, host))
                .collect();
            if let Some(first) = denied.first() {
                let what = format!("fire `{trigger}` at `{first}`");
                return Err(refused(&what));
            }
        }
        Ok(())
    }

    /// Removes the hosts that a node may not reach, without telling it.
    pub(super) async fn keep_reachable(
        &self,
        hosts: &mut Vec<NodeName>,
        request: &FireTrigger,
        limits: &TriggerLimits,
    ) -> Result<(), ServiceError> {
        if request.hosts.is_empty() || !has_query(limits) {
            return Ok(());
        }
        let mut found: Vec<NodeName> = Vec::new();
        if let Some(find) = &self.find_nodes {
            let queries = limits.hosts.iter().filter_map(|entry| match entry {
                NodeMatcher::Query(query) => Some(query),
                _ => None,
            });
            for query in queries.chain(&limits.query) {
                found.extend(find.nodes_matching(query).await?);
            }
        }
        let named = hosts.len();
        hosts.retain(|host| is_named(&limits.hosts, host) || found.contains(host));
        if hosts.len() < named {
            tracing::info!(
                left_out = named - hosts.len(),
                "a node named hosts that it may not reach"
            );
        }
        Ok(())
    }
}

fn has_query(limits: &TriggerLimits) -> bool {
    let is_query = |entry: &NodeMatcher| matches!(entry, NodeMatcher::Query(_));
    limits.query.is_some() || limits.hosts.iter().any(is_query)
}

/// Returns whether a host's name is in the list. Certificates of hosts are not known here.
fn is_named(list: &[NodeMatcher], host: &NodeName) -> bool {
    let none = std::collections::BTreeMap::new();
    list.iter()
        .any(|entry| entry.matches(host, &none) == Some(true))
}

/// The reply as a node gets it: nothing about hosts that it did not name, or about other nodes
/// that fire the same trigger.
pub(super) fn for_a_node(reply: FireReply, request: &FireTrigger) -> FireReply {
    match reply {
        FireReply::Fired { .. } => FireReply::Fired {
            hosts: request.hosts.clone(),
            unknown: Vec::new(),
        },
        FireReply::Held { .. } => FireReply::Held {
            occurrences: 0,
            until: None,
        },
        stopped @ FireReply::Stopped { .. } => stopped,
    }
}
