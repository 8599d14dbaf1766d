//! The sources of plans: three kinds of source, one [`Site`](crate::Site).

mod environment_graph;
mod manifest;
mod site_file;

pub use environment_graph::environment_graph;
pub use manifest::site_manifest;
pub use site_file::{site_file, site_queries};

/// The reason why a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file} is not an environment graph: {why}")]
    Graph { file: String, why: String },
    #[error("{file} is not a site file: {why}")]
    SiteFile { file: String, why: String },
    #[error("{0}")]
    Puppet(Box<bunraku_puppet::PuppetError>),
    #[error("{file}: `{query}` needs the nodes from a server")]
    NoInventory { file: String, query: String },
    #[error("{file}: no node matches `{query}` of {component}")]
    NobodyMatches {
        file: String,
        query: String,
        component: String,
    },
}

impl ReadError {
    /// Returns a hint on what to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Graph { .. } => {
                Some("Puppet servers 4 to 6 provide it at `/puppet/v3/environment/NAME`")
            }
            Self::NoInventory { .. } => Some(
                "plan without `--offline`, or pass the output of `bunraku node list --json` with \
                 `--inventory` (for names), or of `bunraku query --json 'nodes[certname, facts]'` \
                 with `--facts` (for queries)",
            ),
            _ => None,
        }
    }
}
