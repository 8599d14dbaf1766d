//! Compiling ahead of time: from facts and code to catalogs that are held.
//!
//! Requests come into one queue ([`CompileQueue`]). Every server takes nodes
//! from it under a lease ([`lease`]), compiles them ([`compiler`]) and writes
//! the outcome in the transaction that takes the node off the queue
//! ([`outcome`]). Nothing a node asks for ever comes here: nodes are given
//! what was compiled and released.
//!
//! Invariants: one server at most compiles a node at a time; a request is
//! gone only when it was carried out after it came; a failure leaves the
//! catalog before it in place.

mod carry_out;
mod claim;
mod compare_puppet;
mod compiled;
mod compiler;
mod dispatch;
mod lease;
mod lock_readers;
mod outcome;
mod queue;
mod status;
mod trusted;
mod view;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::ServerId;
use bunraku_store::SharedStore;
use tokio::sync::{Semaphore, watch};

pub use crate::compile_failure::CompileFailure;
pub use carry_out::Proposed;
pub use compiled::{CompileFailed, Compiled, holder};
pub use compiler::{Compilation, CompileRequest, Compiler, PuppetOptions, StateFunctions};
pub use lease::{LeaseKeeper, WorkLease};
pub use queue::CompileQueue;

use crate::catalogs::Catalogs;
use crate::code::Code;
use crate::modules::Modules;
use bunraku_control::clock::Clock;
use bunraku_control::metrics::CompileMetrics;
use bunraku_control::{Facts, ServiceError, keys};
use compiler::{Compilers, NoStateFunctions};

/// How compiling behaves on this server.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Compiles at the same time on this server; 0: none, others do it.
    pub concurrency: usize,
    /// A server that was silent for so long has lost what it compiled.
    pub lease: Duration,
    /// What state functions mean; without it, no state is known.
    pub functions: Arc<dyn StateFunctions>,
    /// What the server gives to Puppet code.
    pub puppet: Arc<PuppetOptions>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            concurrency: cores,
            lease: Duration::from_secs(10),
            functions: Arc::new(NoStateFunctions),
            puppet: Arc::default(),
        }
    }
}

/// What the service is made of.
pub struct CompileParts {
    pub store: SharedStore,
    pub clock: Clock,
    pub server: ServerId,
    pub facts: Facts,
    pub catalogs: Catalogs,
    pub code: Code,
    pub modules: Modules,
    pub metrics: Arc<CompileMetrics>,
    pub options: CompileOptions,
}

/// The handle on the compile service.
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
    options: CompileOptions,
    slots: Semaphore,
    /// Counts what changed in the queue, for those who wait for it.
    changes: watch::Sender<u64>,
}

impl Compiles {
    pub fn new(parts: CompileParts) -> Self {
        let longest_answer = parts.catalogs.options().max_size;
        let compilers = Compilers::new(
            parts.code.clone(),
            parts.modules.clone(),
            Arc::clone(&parts.options.functions),
            Arc::clone(&parts.options.puppet),
            longest_answer,
        );
        Self::with(parts, compilers)
    }

    /// With one compiler for everything, whatever the code says.
    pub fn with_one_compiler(parts: CompileParts, compiler: Box<dyn Compiler>) -> Self {
        let compilers = Compilers::one(parts.code.clone(), parts.modules.clone(), compiler);
        Self::with(parts, compilers)
    }

    fn with(parts: CompileParts, compilers: Compilers) -> Self {
        Self {
            inner: Arc::new(Inner {
                queue: CompileQueue::new(parts.store.clone(), parts.clock.clone()),
                slots: Semaphore::new(parts.options.concurrency.max(1)),
                changes: watch::channel(0).0,
                store: parts.store,
                clock: parts.clock,
                server: parts.server,
                facts: parts.facts,
                catalogs: parts.catalogs,
                metrics: parts.metrics,
                options: parts.options,
                compilers,
            }),
        }
    }

    pub fn queue(&self) -> &CompileQueue {
        &self.inner.queue
    }

    /// No other process can have this store open: what is claimed, the dead claimed.
    pub async fn bury_claims(&self) -> Result<(), ServiceError> {
        let transaction = bunraku_store::Transaction::new()
            .delete_prefix(keys::COMPILE_CLAIMS)
            .delete_prefix(keys::DEPLOY_CLAIMS);
        self.inner.store.commit(transaction).await?;
        Ok(())
    }
}
