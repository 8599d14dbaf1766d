//! Compilers: from code at one commit and a node's facts to a catalog.
//!
//! [`Compiler`] is the one trait; which one an environment uses is written in
//! `bunraku.yaml` at its root, or seen from what is there. One instance serves
//! one environment at one commit and nothing else: whatever it keeps (a warm
//! worker, hashes of files) can never mix two of them.

mod external;
mod http_sources;
mod puppet;
mod registry;
mod settings;
mod sources;
mod states;
mod static_files;
mod worker_pool;
mod worker_process;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bunraku_model::{Catalog, CodeId, EnvironmentName, FactSet, FactSetId, NodeName};
use bunraku_wire::api::CompileNote;
use tokio::sync::Semaphore;

use super::lock_readers::LockReader;
use crate::compile_failure::CompileFailure;

pub use puppet::PuppetOptions;
pub(crate) use registry::Compilers;
pub(crate) use states::NoStateFunctions;
pub use states::StateFunctions;

/// What is to be compiled.
#[derive(Clone, Debug)]
pub struct CompileRequest {
    pub node: NodeName,
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub facts: FactSet,
    pub fact_set: FactSetId,
    /// The extensions of the node's certificate, by Puppet's names.
    pub extensions: BTreeMap<String, String>,
    /// Answers who holds a lock.
    pub locks: Option<LockReader>,
}

/// A catalog, and what the compiler logged on the way.
#[derive(Debug)]
pub struct Compilation {
    pub catalog: Catalog,
    pub notes: Vec<CompileNote>,
}

impl From<Catalog> for Compilation {
    fn from(catalog: Catalog) -> Self {
        Self {
            catalog,
            notes: Vec::new(),
        }
    }
}

/// Makes catalogs for one environment at one commit.
#[async_trait]
pub trait Compiler: Send + Sync {
    /// The word in `bunraku.yaml`.
    fn name(&self) -> &'static str;

    /// Makes a catalog. Takes a slot while it works, not while it waits for
    /// something of its own: so one environment that hangs takes no more slots
    /// than it has workers.
    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &Semaphore,
    ) -> Result<Compilation, CompileFailure>;

    /// Makes a catalog from the same inputs with the tools that the language
    /// comes with, to compare the two. Nothing if there are none.
    async fn compile_plainly(
        &self,
        _request: &CompileRequest,
        _slots: &Semaphore,
    ) -> Option<Result<Catalog, CompileFailure>> {
        None
    }
}

async fn slot(slots: &Semaphore) -> Result<tokio::sync::SemaphorePermit<'_>, CompileFailure> {
    slots.acquire().await.map_err(CompileFailure::temporary)
}
