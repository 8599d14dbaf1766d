//! The order to run a datastore on a server.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};

/// The way in which the datastore finds the others at its very first start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterState {
    /// It is the first datastore.
    New,
    /// It was added to the list of a running cluster.
    Existing,
}

/// One datastore on one server, from its first start to its retirement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatastoreOrder {
    /// The name of the data directory. A new order never finds old data.
    pub generation: String,
    /// The id on etcd's list; unknown before the very first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    pub epoch: u64,
    /// Every member with its peer address, including this one.
    pub initial_cluster: Vec<(NodeName, String)>,
    pub state: ClusterState,
    /// Differs from cluster to cluster and from epoch to epoch.
    pub token: String,
    /// Increases with each request to restart the datastore with the installed program.
    #[serde(default)]
    pub restart: u64,
}

impl DatastoreOrder {
    /// Creates the order of the first datastore of a new cluster, or of a new epoch.
    pub fn first(
        cluster: &str,
        epoch: u64,
        name: &NodeName,
        peer_url: &str,
        generation: String,
    ) -> Self {
        Self {
            generation,
            id: None,
            epoch,
            initial_cluster: vec![(name.clone(), peer_url.to_owned())],
            state: ClusterState::New,
            token: format!("{cluster}-{epoch}"),
            restart: 0,
        }
    }

    pub(super) fn initial_cluster_flag(&self) -> String {
        let entries = self.initial_cluster.iter();
        let entries: Vec<String> = entries.map(|(name, url)| format!("{name}={url}")).collect();
        entries.join(",")
    }
}
