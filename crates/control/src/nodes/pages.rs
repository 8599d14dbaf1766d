//! Pages of the list of nodes.
//!
//! A page reads the documents of its own nodes and their pending commands, and nothing of the others.

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_store::KeyValue;
use bunraku_wire::api::{NodeSummary, Page, PageQuery, page};

use super::{NodeDocuments, Nodes};
use crate::{ServiceError, document, keys, pages};

impl Nodes {
    /// Returns one page of the nodes that `is_wanted`, by name.
    pub async fn page(
        &self,
        query: &PageQuery,
        is_wanted: impl Fn(&NodeSummary) -> bool,
    ) -> Result<Page<NodeSummary>, ServiceError> {
        let after = pages::after_key(query)?;
        // Everything of a node sorts before this key.
        let start = after.map(|name| format!("{}{name}0", keys::NODES));
        let mut found = NodePage::new(query.size());
        let is_end = pages::read_some(&*self.store, keys::NODES, start, |entry| {
            found.take(&entry, &is_wanted)
        })
        .await?;
        let mut page = found.finish(is_end, &is_wanted);
        self.count_pending(&mut page.items).await?;
        page.items.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(page)
    }

    /// Counts the pending commands of nodes that are in the order of their keys.
    async fn count_pending(&self, nodes: &mut [NodeSummary]) -> Result<(), ServiceError> {
        let [first, .., last] = nodes else {
            for node in nodes {
                let prefix = keys::command_pending_prefix(&node.name);
                node.pending_commands = document::keys_under(&*self.store, &prefix).await?.len();
            }
            return Ok(());
        };
        let start = keys::command_pending_prefix(&first.name);
        // Everything of the last node sorts before this key.
        let end = format!("{}{}0", keys::PENDING_COMMANDS, last.name);
        let mut pending: BTreeMap<NodeName, usize> = BTreeMap::new();
        pages::read_some(&*self.store, keys::PENDING_COMMANDS, Some(start), |entry| {
            if let Some((node, _)) = keys::parse_pending_command(&entry.key) {
                *pending.entry(node).or_default() += 1;
            }
            Ok(entry.key < end)
        })
        .await?;
        for node in nodes {
            node.pending_commands = pending.get(&node.name).copied().unwrap_or(0);
        }
        Ok(())
    }
}

/// A page of nodes while it is read.
struct NodePage {
    size: usize,
    nodes: Vec<NodeSummary>,
    /// The node whose documents are being read.
    current: Option<(NodeName, NodeDocuments)>,
    keys: usize,
}

impl NodePage {
    fn new(size: usize) -> Self {
        Self {
            size,
            nodes: Vec::new(),
            current: None,
            keys: 0,
        }
    }

    /// Takes the next document. Returns false if the page is complete without it.
    fn take(
        &mut self,
        entry: &KeyValue,
        is_wanted: &impl Fn(&NodeSummary) -> bool,
    ) -> Result<bool, ServiceError> {
        self.keys += 1;
        let Some((node, which)) = keys::parse_node_key(&entry.key) else {
            return Ok(true);
        };
        match &mut self.current {
            Some((current, documents)) if *current == node => documents.take(which, entry)?,
            _ => {
                self.close(is_wanted);
                let is_full = self.nodes.len() >= self.size || self.keys > pages::MOST_KEYS;
                if is_full && self.current.is_some() {
                    return Ok(false);
                }
                let mut documents = NodeDocuments::default();
                documents.take(which, entry)?;
                self.current = Some((node, documents));
            }
        }
        Ok(true)
    }

    /// Adds the current node, and remembers its name.
    fn close(&mut self, is_wanted: &impl Fn(&NodeSummary) -> bool) {
        let Some((name, documents)) = &mut self.current else {
            return;
        };
        let summary = std::mem::take(documents).summary(name.clone(), 0);
        self.nodes.extend(summary.filter(is_wanted));
    }

    fn finish(
        mut self,
        is_end: bool,
        is_wanted: &impl Fn(&NodeSummary) -> bool,
    ) -> Page<NodeSummary> {
        if is_end {
            self.close(is_wanted);
        }
        let last = self.current.filter(|_| !is_end);
        Page {
            items: self.nodes,
            next: last.map(|(name, _)| page::cursor(name.as_str())),
            total: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bunraku_store::testing::{MemoryStore, WriteCounter};

    use super::*;
    use crate::clock::Clock;

    /// Follows all pages of a store with this many nodes.
    async fn followed(
        nodes: &Nodes,
        limit: usize,
        wanted: fn(&NodeSummary) -> bool,
    ) -> Vec<String> {
        let mut query = PageQuery {
            limit: Some(limit),
            after: None,
        };
        let mut found = Vec::new();
        loop {
            let page = nodes.page(&query, wanted).await.expect("a page");
            assert!(page.items.len() <= limit);
            found.extend(page.items.iter().map(|node| node.name.to_string()));
            match page.next {
                None => return found,
                next => query.after = next,
            }
        }
    }

    #[tokio::test]
    async fn every_node_is_on_one_page() {
        let nodes = Nodes::new(Arc::new(MemoryStore::new()), Clock::system());
        let mut names = Vec::new();
        for number in 0..25 {
            // Some names begin like others, and sort after or before them with a suffix.
            for suffix in ["", "-a", ".b", "0"] {
                let name = NodeName::new(format!("web{number}{suffix}")).expect("a name");
                nodes.register(&name).await.expect("registered");
                names.push(name.to_string());
            }
        }
        names.sort();
        names.dedup();
        for limit in [1, 3, 7, 1_000] {
            let mut found = followed(&nodes, limit, |_| true).await;
            found.sort();
            assert_eq!(found, names, "pages of {limit}");
        }
        let some = followed(&nodes, 3, |node| node.name.as_str().ends_with("-a")).await;
        assert_eq!(some.len(), 25);
    }

    #[tokio::test]
    async fn a_page_reads_only_its_nodes_and_their_commands() {
        let counter = Arc::new(WriteCounter::new(Arc::new(MemoryStore::new())));
        let nodes = Nodes::new(counter.clone(), Clock::system());
        for number in 0..3_000 {
            let name = NodeName::new(format!("web-{number:04}")).expect("a name");
            nodes.register(&name).await.expect("registered");
        }
        // Disabling a node sends it a command.
        for name in ["web-0003", "web-0004", "web-2999"] {
            let name = NodeName::new(name).expect("a name");
            nodes
                .disable(&name, "repair", "alice")
                .await
                .expect("disabled");
        }
        counter.take_keys_read();
        let query = PageQuery {
            limit: Some(5),
            after: None,
        };
        let page = nodes.page(&query, |_| true).await.expect("a page");
        let pending: Vec<usize> = page.items.iter().map(|it| it.pending_commands).collect();
        assert_eq!(pending, [0, 0, 0, 1, 1]);
        // The store returns a thousand keys at a time.
        let read = counter.take_keys_read();
        assert!(read <= 1_010, "{read} keys");
    }
}
