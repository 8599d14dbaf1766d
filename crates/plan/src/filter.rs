//! A part of a plan: some applications, some nodes.

use std::collections::BTreeSet;

use bunraku_model::NodeName;

use crate::inventory::NodePattern;

/// The parts to keep. Empty lists keep everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Applications, such as `Lamp[app1]`.
    pub instances: Vec<String>,
    pub nodes: Vec<NodePattern>,
    /// The nodes that a query returned.
    pub only: Option<BTreeSet<NodeName>>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.nodes.is_empty() && self.only.is_none()
    }

    pub(crate) fn selects_no_nodes(&self) -> bool {
        self.nodes.is_empty() && self.only.is_none()
    }

    pub(crate) fn keeps_application(&self, application: &str) -> bool {
        self.instances.is_empty() || self.names(application)
    }

    pub(crate) fn includes(&self, application: &str, node: &NodeName) -> bool {
        let instance = self.keeps_application(application);
        let named = self.nodes.is_empty()
            || self
                .nodes
                .iter()
                .any(|pattern| pattern.matches(node.as_str()));
        let queried = self.only.as_ref().is_none_or(|only| only.contains(node));
        instance && named && queried
    }

    pub(crate) fn names(&self, application: &str) -> bool {
        self.instances.iter().any(|wanted| wanted == application)
    }
}
