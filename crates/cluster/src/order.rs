//! What a server was told to run.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};

/// How the datastore finds the others at its very first start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterState {
    /// It is the first one.
    New,
    /// It was added to the list of one that runs.
    Existing,
}

/// One datastore on one server, from its first start to its retirement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Names the data directory. A new order never finds old data.
    pub generation: String,
    /// On etcd's list; not known before the very first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    pub epoch: u64,
    /// Every member with its peer address, this one included.
    pub initial_cluster: Vec<(NodeName, String)>,
    pub state: ClusterState,
    /// Differs from cluster to cluster and from epoch to epoch.
    pub token: String,
    /// Grows each time that it is to be started anew with what is installed.
    #[serde(default)]
    pub restart: u64,
}

impl Order {
    /// Of the first datastore of a new cluster, or of a new epoch.
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
