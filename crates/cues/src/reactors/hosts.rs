//! The hosts of a rule: those that it names, and those that an event names.
//!
//! Monitoring systems name a machine in their own way: `web-1.example.com:9100`, an address, or a
//! short name. So a host from an event is looked up by its name without the port, and then by the
//! facts of nodes. It must be exactly one node of the rule's environment. Whatever cannot be used
//! is kept with the reason, for the history.

use std::net::IpAddr;

use bunraku_model::{EnvironmentName, NodeName};
use bunraku_wire::api::reactors::{Reactor, ReactorEvent};

use super::{Reactors, matching};
use bunraku_control::{ServiceError, nodes};

/// The longest host name that is looked up.
const LONGEST_HOST: usize = 253;
/// The number of characters of a host that reasons show.
const SHOWN: usize = 100;

/// The hosts of a rule for an event.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct HostsOfEvent {
    /// Hosts to notify. A name that the rule itself contains may be unknown.
    pub(super) hosts: Vec<NodeName>,
    /// Hosts that the event names and that are not used, with the reasons.
    pub(super) tried: Vec<String>,
}

impl HostsOfEvent {
    pub(super) fn extend(&mut self, other: Self) {
        self.hosts.extend(other.hosts);
        self.hosts.sort();
        self.hosts.dedup();
        for tried in other.tried {
            if !self.tried.contains(&tried) {
                self.tried.push(tried);
            }
        }
    }
}

impl Reactors {
    /// Returns the hosts that a rule names, with fields filled in.
    pub(super) async fn hosts_of(
        &self,
        environment: &EnvironmentName,
        rule: &Reactor,
        event: &ReactorEvent,
    ) -> Result<HostsOfEvent, ServiceError> {
        let mut found = HostsOfEvent::default();
        for host in &rule.hosts {
            if !host.contains("${") {
                found.hosts.extend(NodeName::new(host.as_str()).ok());
                continue;
            }
            match matching::fill(host, event) {
                None => (found.tried).push(format!("the event has no value for `{host}`")),
                Some(text) => match self.resolve(environment, text.trim()).await? {
                    Ok(node) => found.hosts.push(node),
                    Err(why) => found.tried.push(why),
                },
            }
        }
        found.hosts.sort();
        found.hosts.dedup();
        Ok(found)
    }

    /// Finds the node of the environment that a host stands for, or says why there is none.
    async fn resolve(
        &self,
        environment: &EnvironmentName,
        text: &str,
    ) -> Result<Result<NodeName, String>, ServiceError> {
        let shown: String = text.chars().take(SHOWN).collect();
        let Some(host) = host_of(text) else {
            return Ok(Err(format!("`{shown}` is not a host name")));
        };
        if let Ok(node) = NodeName::new(host) {
            match nodes::environment_of(&*self.store, &node).await? {
                Some(of) if of == *environment => return Ok(Ok(node)),
                Some(of) => {
                    return Ok(Err(format!("`{shown}` is a node of environment {of}")));
                }
                None => {}
            }
        }
        let mut known = Vec::new();
        let query = query_of(host);
        let named = match self.links.find_nodes.nodes_matching(&query).await {
            Ok(named) => named,
            // This server has no index.
            Err(ServiceError::Invalid { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        for node in named {
            if nodes::environment_of(&*self.store, &node).await?.as_ref() == Some(environment) {
                known.push(node);
            }
        }
        Ok(match known.as_slice() {
            [] => Err(format!(
                "`{shown}` is not a node of environment {environment}"
            )),
            [node] => Ok(node.clone()),
            [first, second, ..] => Err(format!(
                "`{shown}` may be any of {} nodes, such as {first} and {second}",
                known.len()
            )),
        })
    }
}

/// Returns the host in `host`, `host:port`, an address, `[address]:port`, or a URL.
fn host_of(text: &str) -> Option<&str> {
    let text = match text.split_once("://") {
        Some((_, rest)) => rest.split(['/', '?', '#']).next().unwrap_or_default(),
        None => text,
    };
    let host = if let Some(rest) = text.strip_prefix('[') {
        rest.split_once(']')?.0
    } else if text.parse::<IpAddr>().is_ok() {
        text
    } else {
        match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            Some(_) => return None,
            None => text,
        }
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let fits = !host.is_empty() && host.len() <= LONGEST_HOST && host.chars().all(is_plain);
    fits.then_some(host)
}

/// Returns the query for the nodes whose facts contain a host. The host is plain text, without
/// quotes.
fn query_of(host: &str) -> String {
    if host.parse::<IpAddr>().is_ok() {
        return format!(
            "nodes {{ facts.networking.ip = \"{host}\" or facts.networking.ip6 = \"{host}\" \
             or facts.networking.interfaces.*.ip = \"{host}\" \
             or facts.networking.interfaces.*.ip6 = \"{host}\" }}"
        );
    }
    format!(
        "nodes {{ facts.networking.fqdn = \"{host}\" or facts.networking.hostname = \"{host}\" }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_control::find_nodes::check_node_query;

    #[test]
    fn a_host_is_found_in_what_monitoring_calls_an_instance() {
        for (text, expected) in [
            ("web-1", Some("web-1")),
            ("web-1.example.com:9100", Some("web-1.example.com")),
            ("10.0.0.5:9100", Some("10.0.0.5")),
            ("10.0.0.5", Some("10.0.0.5")),
            ("[2001:db8::1]:9100", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("https://web-1:8443/metrics", Some("web-1")),
            ("web-1:http", None),
            ("", None),
            (":9100", None),
            ("web-1\" or certname ~ \"", None),
            ("../x", None),
        ] {
            assert_eq!(host_of(text), expected, "{text}");
        }
    }

    #[test]
    fn the_queries_for_hosts_are_valid() {
        for host in ["web-1", "10.0.0.5", "2001:db8::1"] {
            check_node_query(&query_of(host)).expect("a query");
        }
    }
}
