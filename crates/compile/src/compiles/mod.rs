//! Compiles ahead of time: from facts and code to held catalogs.
//!
//! Requests go into one queue ([`CompileQueue`]). Every server takes nodes from
//! it under a lease ([`lease`]), compiles them ([`compiler`]) and writes the
//! outcome in the transaction that removes the node from the queue
//! ([`outcome`]). Requests of nodes never reach this code: nodes receive
//! catalogs that are already compiled and released.
//!
//! Invariants: at most one server compiles a node at a time; a request is
//! removed only after a compile that started after the request came; a failure
//! leaves the previous catalog in place.

mod attempts;
mod claim;
mod compare_puppet;
mod compile_once;
mod compiled;
mod compiler;
mod dispatch;
mod lease;
mod lock_readers;
mod outcome;
mod plugins;
mod queue;
mod readers;
mod reads;
mod slots;
mod status;
mod trusted;
mod view;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::ServerId;
use bunraku_store::SharedStore;
use tokio::sync::watch;

pub use crate::compile_failure::CompileFailure;
pub use compile_once::ProposedCatalog;
pub use compiled::{CompileFailed, CompiledCatalog, holder};
pub use compiler::{
    Compilation, CompileRequest, Compiler, ExternalPrograms, FunctionCallError, ProgramIsolation,
    PuppetFunctions, PuppetOptions, StateFunctions, WorkerOptions, run_code_worker,
};
pub(crate) use compiler::{EXTERNAL, not_allowed};
pub use lease::{LeaseKeeper, WorkLease};
pub use queue::CompileQueue;
pub use slots::{CompileSlot, CompileSlots, EnvironmentSlots};
pub(crate) use status::InspectedCompiler;

use crate::catalogs::Catalogs;
use crate::code::Code;
use crate::code_questions::AnswerCode;
use crate::modules::Modules;
use bunraku_control::clock::Clock;
use bunraku_control::metrics::CompileMetrics;
use bunraku_control::{Facts, ServiceError, keys};
use compiler::{Compilers, NoStateFunctions};

/// Compile settings of this server.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Number of concurrent compiles on this server, besides additional ones that
    /// keep environments apart ([`CompileSlots`]). With 0, only other servers compile.
    pub concurrency: usize,
    /// A server that is silent for this long loses its claims.
    pub lease: Duration,
    /// Nodes whose code asked about other nodes are compiled again when an answer
    /// has changed and then stayed the same for this long.
    pub answer_quiet: Duration,
    /// The meaning of state functions; without it, every state is unknown.
    pub functions: Arc<dyn StateFunctions>,
    /// The server's settings for Puppet code.
    pub puppet: Arc<PuppetOptions>,
    /// The processes in which code is compiled.
    pub workers: Arc<WorkerOptions>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            concurrency: cores,
            lease: Duration::from_secs(10),
            answer_quiet: Duration::from_secs(10),
            functions: Arc::new(NoStateFunctions),
            puppet: Arc::default(),
            workers: Arc::default(),
        }
    }
}

/// The dependencies of the service.
pub struct CompileParts {
    pub store: SharedStore,
    pub clock: Clock,
    pub server: ServerId,
    pub facts: Facts,
    pub catalogs: Catalogs,
    pub code: Code,
    pub modules: Modules,
    pub metrics: Arc<CompileMetrics>,
    /// Answers questions of code about other nodes.
    pub answers: Arc<dyn AnswerCode>,
    pub options: CompileOptions,
}

/// Handle for the compile service.
#[derive(Clone)]
pub struct Compiles {
    inner: Arc<Inner>,
}

struct Inner {
    store: SharedStore,
    clock: Clock,
    server: ServerId,
    facts: Facts,
    catalogs: Catalogs,
    compilers: Compilers,
    queue: CompileQueue,
    metrics: Arc<CompileMetrics>,
    answers: Arc<dyn AnswerCode>,
    options: CompileOptions,
    slots: CompileSlots,
    /// Only one task archives plugins at a time; the others find the result.
    archiving: tokio::sync::Mutex<()>,
    /// Counts changes of the queue, for tasks that wait for them.
    changes: watch::Sender<u64>,
}

impl Compiles {
    pub fn new(parts: CompileParts) -> Self {
        let longest_answer = parts.catalogs.options().max_size;
        let compilers = Compilers::new(
            parts.code.clone(),
            parts.modules.clone(),
            &parts.options,
            longest_answer,
        );
        Self::with(parts, compilers)
    }

    /// Creates the service with one compiler for everything, whatever the code selects.
    pub fn with_one_compiler(parts: CompileParts, compiler: Box<dyn Compiler>) -> Self {
        let compilers = Compilers::one(parts.code.clone(), parts.modules.clone(), compiler);
        Self::with(parts, compilers)
    }

    fn with(parts: CompileParts, compilers: Compilers) -> Self {
        Self {
            inner: Arc::new(Inner {
                queue: CompileQueue::new(parts.store.clone(), parts.clock.clone()),
                slots: CompileSlots::new(parts.options.concurrency.max(1)),
                changes: watch::channel(0).0,
                archiving: tokio::sync::Mutex::default(),
                store: parts.store,
                clock: parts.clock,
                server: parts.server,
                facts: parts.facts,
                catalogs: parts.catalogs,
                metrics: parts.metrics,
                answers: parts.answers,
                options: parts.options,
                compilers,
            }),
        }
    }

    pub(crate) fn catalogs(&self) -> &Catalogs {
        &self.inner.catalogs
    }

    pub fn queue(&self) -> &CompileQueue {
        &self.inner.queue
    }

    /// Deletes all claims. No other process can have this store open, so the
    /// servers that made them are dead.
    pub async fn bury_claims(&self) -> Result<(), ServiceError> {
        let transaction = bunraku_store::Transaction::new()
            .delete_prefix(keys::COMPILE_CLAIMS)
            .delete_prefix(keys::DEPLOY_CLAIMS);
        self.inner.store.commit(transaction).await?;
        Ok(())
    }
}
