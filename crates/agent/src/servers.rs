//! All servers that this node can go to.
//!
//! The configuration names one or more; a server of a cluster names all. The
//! list is kept on disk, so that the agent finds its way when the server of
//! the configuration is the one that is gone. Every node has an order of its
//! own: together they spread over the servers, and when one dies, its nodes
//! spread over those that are left.

use std::path::PathBuf;

use bunraku_model::{ContentId, NodeName};
use bunraku_wire::ServerAddress;
use bunraku_wire::api::cluster::ServerList;
use bunraku_wire::endpoints::ListServers;

use crate::{AgentOptions, Shared};

/// More servers than any cluster has.
const MOST: usize = 100;

fn path(options: &AgentOptions) -> PathBuf {
    options.data_dir.join("servers.json")
}

/// The list of before; empty when there is none that can be read.
fn known(options: &AgentOptions) -> Vec<ServerAddress> {
    let text = std::fs::read(path(options)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// This node's order: by a hash of both names, so it is the same at every
/// start, and another one on every node.
fn in_own_order(node: &NodeName, mut servers: Vec<ServerAddress>) -> Vec<ServerAddress> {
    servers.sort_by_cached_key(|server| ContentId::of(format!("{node} {server}").as_bytes()));
    servers.dedup();
    servers
}

/// Those of the cluster in this node's order, then those of the configuration
/// in theirs.
fn all(options: &AgentOptions, cluster: Vec<ServerAddress>) -> Vec<ServerAddress> {
    let mut all = in_own_order(&options.name, cluster);
    for server in &options.servers {
        if !all.contains(server) {
            all.push(server.clone());
        }
    }
    all
}

/// Where to go at the start.
pub(crate) fn remembered(options: &AgentOptions) -> Vec<ServerAddress> {
    all(options, known(options))
}

/// Asks the server that just took the stream for all servers. Says whether
/// the stream should be opened again, because the list is new and another
/// server comes first in it.
pub(crate) async fn follow(shared: &Shared, current: &ServerAddress) -> bool {
    let list: ServerList = match shared.client.call(ListServers).await {
        Ok(list) => list,
        Err(error) => {
            tracing::debug!(error = %error, "the list of servers stays as it was");
            return false;
        }
    };
    take(shared, &list.servers, current).await
}

/// Goes by this list from now on. Says whether the stream should be opened
/// again, because the list is new and another server comes first in it.
pub(crate) async fn take(shared: &Shared, listed: &[String], current: &ServerAddress) -> bool {
    let options = &shared.options;
    let named = listed.iter().take(MOST);
    let servers: Vec<ServerAddress> = named.filter_map(|text| text.parse().ok()).collect();
    let servers = in_own_order(&options.name, servers);
    if servers.is_empty() || servers == in_own_order(&options.name, known(options)) {
        return false;
    }
    let text = serde_json::to_vec(&servers).expect("addresses are text");
    if let Err(error) = bunraku_files::replace(&path(options), &text, 0o600) {
        tracing::warn!(error = %error, "the list of servers cannot be kept");
        // It would be new again at every start of the stream.
        return false;
    }
    tracing::info!(
        count = servers.len(),
        "the servers of the cluster are known"
    );
    let moves = servers.first() != Some(current);
    shared.client.set_servers(all(options, servers)).await;
    moves
}

/// A server came up: if it is not this one, it may be the one that this node
/// would rather have. Says whether the stream should be opened again.
pub(crate) async fn go_back(shared: &Shared, current: &ServerAddress) -> bool {
    let servers = remembered(&shared.options);
    let moves = servers.first() != Some(current);
    if moves {
        shared.client.set_servers(servers).await;
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: usize) -> ServerAddress {
        ServerAddress::new(&format!("server-{number}"), 8150).expect("an address")
    }

    fn order(node: usize, count: usize) -> Vec<ServerAddress> {
        let node = NodeName::new(format!("node-{node}")).expect("a name");
        in_own_order(&node, (0..count).map(server).collect())
    }

    #[test]
    fn nodes_spread_over_all_servers_and_over_those_that_are_left() {
        let mut first = [0; 3];
        let mut second = [0; 3];
        for node in 0..3000 {
            let order = order(node, 3);
            let place = |wanted: &ServerAddress| {
                (0..3)
                    .find(|number| server(*number) == *wanted)
                    .expect("one of them")
            };
            first[place(&order[0])] += 1;
            if order[0] == server(0) {
                second[place(&order[1])] += 1;
            }
        }
        assert!(
            first.iter().all(|count| (850..1150).contains(count)),
            "{first:?}"
        );
        assert!(second[1] > 350 && second[2] > 350, "{second:?}");
    }

    #[test]
    fn a_new_server_takes_its_share_and_moves_nobody_else() {
        let moved = (0..1000).filter(|node| {
            let (before, after) = (order(*node, 3), order(*node, 4));
            before[0] != after[0]
        });
        let to_the_new_one = (0..1000).filter(|node| order(*node, 4)[0] == server(3));
        assert_eq!(moved.count(), to_the_new_one.count());
    }
}
