//! The services of a server without its network: for simulations and benches.
//!
//! Uses the same handles and background work as [`crate::Server`], on any store and clock,
//! with a compiler that needs no code on disk. Dropping it has the effect of `kill -9` on a
//! server: all work stops immediately, and leases stay until they expire.

use std::path::PathBuf;
use std::sync::Arc;

use bunraku_model::ServerId;
use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use bunraku_compile::catalogs::{CatalogOptions, Catalogs};
use bunraku_compile::code::{Code, CodeOptions};
pub use bunraku_compile::compiles::{
    Compilation, CompileFailure, CompileOptions, CompileQueue, CompileRequest, Compiler, Compiles,
};
use bunraku_compile::compiles::{CompileParts, LeaseKeeper};
use bunraku_compile::releases::ReleaseWorker;
use bunraku_compile::{CommandHub, Queries, ReleaseOptions, Releases, TargetBoard};
use bunraku_control::{
    Clock, CommandOptions, Commands, FactHooks, FactOptions, Facts, Metrics, Nodes, ReportOptions,
    Reports,
};

/// The parts that a server's services are built from.
pub struct BackstageParts {
    pub store: SharedStore,
    pub blobs: SharedBlobs,
    pub clock: Clock,
    pub server: ServerId,
    /// Working directory. Stays empty as long as the compiler needs no code.
    pub directory: PathBuf,
    pub compiler: Box<dyn Compiler>,
    pub facts: FactOptions,
    pub compiles: CompileOptions,
    pub releases: ReleaseOptions,
}

/// A server's running services.
pub struct Backstage {
    pub nodes: Nodes,
    pub facts: Facts,
    pub compiles: Compiles,
    pub catalogs: Catalogs,
    pub releases: Releases,
    pub board: TargetBoard,
    pub queries: Queries,
    pub reports: Reports,
    tasks: JoinSet<()>,
}

impl Backstage {
    /// Starts the background work on the current runtime.
    pub fn start(parts: BackstageParts) -> Self {
        let (store, blobs, clock) = (&parts.store, &parts.blobs, &parts.clock);
        let queue = Arc::new(CompileQueue::new(store.clone(), clock.clone()));
        let hooks = FactHooks {
            changed: Some(queue.clone()),
            environment: Some(queue),
        };
        let options = FactOptions {
            server: parts.server,
            ..parts.facts
        };
        let facts = Facts::new(store.clone(), blobs.clone(), clock.clone(), options, hooks);
        let catalogs = Catalogs::new(
            store.clone(),
            blobs.clone(),
            clock.clone(),
            CatalogOptions::default(),
        );
        let metrics: Arc<Metrics> = Arc::default();
        let keeper = LeaseKeeper::new(store.clone(), parts.compiles.lease);
        let compile_parts = CompileParts {
            modules: bunraku_compile::modules::Modules::new(
                store.clone(),
                blobs.clone(),
                clock.clone(),
                std::path::Path::new("/nonexistent"),
            ),
            store: store.clone(),
            clock: clock.clone(),
            server: parts.server,
            facts: facts.clone(),
            catalogs: catalogs.clone(),
            code: Code::new(
                store.clone(),
                blobs.clone(),
                clock.clone(),
                &parts.directory,
                CodeOptions::default(),
            ),
            metrics: Arc::clone(&metrics.compiles),
            options: parts.compiles,
        };
        let compiles = Compiles::with_one_compiler(compile_parts, parts.compiler);
        let reports = Reports::new(
            store.clone(),
            blobs.clone(),
            clock.clone(),
            ReportOptions::default(),
        );
        let queries = Queries::new(
            store.clone(),
            blobs.clone(),
            reports.clone(),
            bunraku_query::Limits::default(),
        );
        let releases = Releases::new(
            store.clone(),
            blobs.clone(),
            catalogs.clone(),
            clock.clone(),
            Arc::new(queries.clone()),
            parts.releases,
        );
        let commands = Commands::new(store.clone(), clock.clone(), CommandOptions::default());
        let mut backstage = Self {
            nodes: Nodes::new(store.clone(), clock.clone()),
            board: TargetBoard::new(store.clone()),
            facts,
            compiles,
            catalogs,
            releases,
            queries,
            reports,
            tasks: JoinSet::new(),
        };
        let hub = CommandHub::new(store.clone(), commands, backstage.board.clone());
        backstage.work(keeper, metrics, hub, parts.server);
        backstage
    }

    fn work(
        &mut self,
        keeper: LeaseKeeper,
        metrics: Arc<Metrics>,
        hub: CommandHub,
        server: ServerId,
    ) {
        // Never cancelled: dropping the tasks ends them.
        let forever = CancellationToken::new();
        let (facts, stop) = (self.facts.clone(), forever.clone());
        self.tasks
            .spawn(async move { facts.run_workers(metrics, stop).await });
        let (compiles, lease, stop) = (self.compiles.clone(), keeper.subscribe(), forever.clone());
        self.tasks
            .spawn(async move { compiles.run(lease, stop).await });
        let stop = forever.clone();
        self.tasks.spawn(async move { keeper.run(&stop).await });
        let worker = ReleaseWorker {
            releases: self.releases.clone(),
            name: server.to_string(),
        };
        let stop = forever.clone();
        self.tasks.spawn(async move { worker.run(stop).await });
        let (board, stop) = (self.board.clone(), forever.clone());
        self.tasks
            .spawn(async move { board.run(|node| hub.tell_target(node), stop).await });
        let queries = self.queries.clone();
        self.tasks.spawn(async move { queries.run(forever).await });
    }
}
