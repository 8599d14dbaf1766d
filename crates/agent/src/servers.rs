//! All servers that this node can connect to.
//!
//! The configuration names one or more servers; a server of a cluster names all of them. The list
//! is kept on disk, so that the agent still finds a server if the configured one is down. Every
//! node has its own order. So the nodes spread over the servers, and when a server dies, its nodes
//! spread over the remaining ones.

use std::path::PathBuf;

use bunraku_model::{ContentId, NodeName};
use bunraku_wire::ServerAddress;
use bunraku_wire::api::cluster::ServerList;
use bunraku_wire::endpoints::ListServers;

use crate::{AgentOptions, Shared};

/// The maximum number of servers, more than any cluster has.
const MOST: usize = 100;

fn path(options: &AgentOptions) -> PathBuf {
    options.data_dir.join("servers.json")
}

/// Returns the stored list. It is empty if there is no readable one.
fn read_list(options: &AgentOptions) -> Vec<ServerAddress> {
    let text = std::fs::read(path(options)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Sorts the servers in this node's order: by a hash of both names, so the order is the same at
/// every start and different on every node.
fn in_own_order(node: &NodeName, mut servers: Vec<ServerAddress>) -> Vec<ServerAddress> {
    servers.sort_by_cached_key(|server| ContentId::of(format!("{node} {server}").as_bytes()));
    servers.dedup();
    servers
}

/// Returns the cluster's servers in this node's order, then the configured servers in their own
/// order.
fn all(options: &AgentOptions, cluster: Vec<ServerAddress>) -> Vec<ServerAddress> {
    let mut all = in_own_order(&options.name, cluster);
    for server in &options.servers {
        if !all.contains(server) {
            all.push(server.clone());
        }
    }
    all
}

/// Returns the servers to use at the start.
pub(crate) fn initial_servers(options: &AgentOptions) -> Vec<ServerAddress> {
    all(options, read_list(options))
}

/// Asks the server that just accepted the stream for all servers. Returns whether the stream should
/// be reopened, because the list is new and another server comes first in it.
pub(crate) async fn follow(shared: &Shared, current: &ServerAddress) -> bool {
    let list: ServerList = match shared.client.call(ListServers).await {
        Ok(list) => list,
        Err(error) => {
            tracing::debug!(error = %error, "cannot update the list of servers");
            return false;
        }
    };
    take(shared, &list.servers, current).await
}

/// Uses this list from now on. Returns whether the stream should be reopened, because the list is
/// new and another server comes first in it.
pub(crate) async fn take(shared: &Shared, listed: &[String], current: &ServerAddress) -> bool {
    let options = &shared.options;
    let named = listed.iter().take(MOST);
    let servers: Vec<ServerAddress> = named.filter_map(|text| text.parse().ok()).collect();
    let servers = in_own_order(&options.name, servers);
    if servers.is_empty() || servers == in_own_order(&options.name, read_list(options)) {
        return false;
    }
    let text = serde_json::to_vec(&servers).expect("addresses are text");
    if let Err(error) = bunraku_files::replace(&path(options), &text, 0o600) {
        tracing::warn!(error = %error, "cannot store the list of servers");
        // Otherwise the list would be new again at every start of the stream.
        return false;
    }
    tracing::info!(count = servers.len(), "updated the list of servers");
    let moves = servers.first() != Some(current);
    shared.client.set_servers(all(options, servers)).await;
    moves
}

/// Handles a server that came up. If it is not the current one, this node may prefer it. Returns
/// whether the stream should be reopened.
pub(crate) async fn go_back(shared: &Shared, current: &ServerAddress) -> bool {
    let servers = initial_servers(&shared.options);
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
    fn a_new_server_takes_its_share_and_moves_no_other_node() {
        let moved = (0..1000).filter(|node| {
            let (before, after) = (order(*node, 3), order(*node, 4));
            before[0] != after[0]
        });
        let to_the_new_one = (0..1000).filter(|node| order(*node, 4)[0] == server(3));
        assert_eq!(moved.count(), to_the_new_one.count());
    }
}
