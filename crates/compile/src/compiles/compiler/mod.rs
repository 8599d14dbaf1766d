//! Compilers: from code at one commit and a node's facts to a catalog.
//!
//! [`Compiler`] is the only trait. `bunraku.yaml` at an environment's root
//! selects the compiler; without it, the files in the tree do. One instance
//! serves exactly one environment at one commit, so its caches (a warm worker,
//! hashes of files) can never mix two of them.

mod code_worker;
mod external;
mod http_sources;
mod puppet;
mod registry;
mod settings;
mod sources;
mod state_exports;
mod states;
mod static_files;
mod worker_death;
mod worker_pool;
mod worker_process;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bunraku_model::{Catalog, CodeId, EnvironmentName, FactSet, FactSetId, NodeName, OrderingMode};
use bunraku_wire::api::CompileNote;

use super::lock_readers::LockReader;
use super::slots::EnvironmentSlots;
use crate::code_questions::CodeSession;
use crate::compile_failure::CompileFailure;

pub use code_worker::{WorkerOptions, run_code_worker};
pub(crate) use external::{EXTERNAL, not_allowed};
pub use external::{ExternalPrograms, ProgramIsolation};
pub use puppet::{FunctionCallError, PuppetFunctions, PuppetOptions};
pub(crate) use registry::Compilers;
pub(crate) use states::NoStateFunctions;
pub use states::StateFunctions;

/// The inputs of a compile.
#[derive(Clone, Debug)]
pub struct CompileRequest {
    pub node: NodeName,
    pub environment: EnvironmentName,
    pub code_id: CodeId,
    pub facts: FactSet,
    pub fact_set: FactSetId,
    /// The extensions of the node's certificate, by Puppet's names.
    pub extensions: BTreeMap<String, String>,
    /// Looks up the holders of a lock.
    pub locks: Option<LockReader>,
    /// Answers questions about other nodes.
    pub questions: Option<CodeSession>,
    /// The environment's ordering mode.
    pub ordering: Option<OrderingMode>,
    /// An operator allows the repository to run programs.
    pub allows_external: bool,
    /// Facts may decide which state files and data the node gets.
    pub fact_targeting: bool,
}

/// A catalog, and the messages that the compiler logged.
#[derive(Debug)]
pub struct Compilation {
    pub catalog: Catalog,
    pub notes: Vec<CompileNote>,
    /// The version that the code gives itself, such as Puppet's `config_version`.
    pub version: Option<String>,
}

impl From<Catalog> for Compilation {
    fn from(catalog: Catalog) -> Self {
        Self {
            catalog,
            notes: Vec::new(),
            version: None,
        }
    }
}

/// Compiles catalogs for one environment at one commit.
#[async_trait]
pub trait Compiler: Send + Sync {
    /// Returns the compiler's name in `bunraku.yaml`.
    fn name(&self) -> &'static str;

    /// Compiles a catalog. Takes a slot while it works, but not while it waits
    /// for its own resources. So an environment that hangs takes no more slots
    /// than it has workers.
    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure>;

    /// Compiles a catalog from the same inputs with the language's own tools,
    /// to compare the two. Returns nothing if there are no such tools.
    async fn compile_plainly(
        &self,
        _request: &CompileRequest,
        _slots: &EnvironmentSlots<'_>,
    ) -> Option<Result<Catalog, CompileFailure>> {
        None
    }
}
