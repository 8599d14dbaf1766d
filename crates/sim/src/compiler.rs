//! A compiler whose catalogs record the facts and the code that they were made
//! from. It detects when one node is compiled twice at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{Catalog, NodeName};
use bunraku_server::backstage::{
    Compilation, CompileFailure, CompileRequest, Compiler, EnvironmentSlots,
};
use serde_json::json;

use crate::Chance;

#[derive(Default, Debug)]
struct CompileCounts {
    under_way: BTreeMap<NodeName, usize>,
    compiles: usize,
    twice: Vec<NodeName>,
}

/// The handle; clones share their counts, including those of a killed server.
#[derive(Clone)]
pub struct CountingCompiler {
    seen: Arc<Mutex<CompileCounts>>,
    chance: Chance,
    longest: Duration,
}

impl CountingCompiler {
    /// Creates a compiler. A compile takes up to `longest`.
    pub fn new(chance: Chance, longest: Duration) -> Self {
        Self {
            seen: Arc::default(),
            chance,
            longest,
        }
    }

    pub fn compiles(&self) -> usize {
        self.counts().compiles
    }

    /// Returns the nodes that were compiled twice at once.
    pub fn twice_at_once(&self) -> Vec<NodeName> {
        self.counts().twice.clone()
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, CompileCounts> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, node: &NodeName) -> CompileGuard {
        let mut seen = self.counts();
        seen.compiles += 1;
        let count = seen.under_way.entry(node.clone()).or_default();
        *count += 1;
        if *count > 1 {
            seen.twice.push(node.clone());
        }
        CompileGuard {
            compiler: self.clone(),
            node: node.clone(),
        }
    }
}

/// A compile in progress. It ends with the compile, or with the server that is killed during it.
struct CompileGuard {
    compiler: CountingCompiler,
    node: NodeName,
}

impl Drop for CompileGuard {
    fn drop(&mut self) {
        if let Some(count) = self.compiler.counts().under_way.get_mut(&self.node) {
            *count -= 1;
        }
    }
}

/// Returns the version in a node's facts, which its catalogs repeat.
pub(crate) fn version(facts: &bunraku_model::FactSet) -> u64 {
    let version = facts.get("version").and_then(serde_json::Value::as_u64);
    version.unwrap_or_default()
}

#[async_trait]
impl Compiler for CountingCompiler {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        _slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let _under_way = self.begin(&request.node);
        tokio::time::sleep(self.chance.up_to(self.longest)).await;
        let catalog = json!({
            "name": request.node,
            "resources": [
                {
                    "type": "File",
                    "title": "/etc/version",
                    "parameters": {"content": format!("{} {}", version(&request.facts), request.code_id)},
                },
                {"type": "File", "title": "/etc/second", "parameters": {"content": "2"}},
                {"type": "File", "title": "/etc/third", "parameters": {"content": "3"}},
            ],
        });
        let catalog: Catalog = serde_json::from_value(catalog).expect("this is a catalog");
        Ok(catalog.into())
    }
}
