//! How a server's services depend on each other, and the background work that they need.
//!
//! The real server, the simulation and benches all build their services here, so that none of
//! them lacks a service or a task that the others have. Whatever differs between them is a
//! parameter: store, blobs, clock, authority, and the compiler of a simulation.
//!
//! Absent here: the network. [`crate::Server`] listens, and [`crate::backstage`] does not.

use std::pin::Pin;
use std::sync::Arc;

use bunraku_model::{ContentPlace, Role, ServerId};
use bunraku_signer::SignerHandle;
use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;
use bunraku_store::stale::{self, Permission};
use bunraku_wire::Revocations;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::service_options::ServiceOptions;
use crate::services::{ServerIdentity, ServiceSet, Services};
use crate::store_upkeep::StoreUpkeep;
use crate::upkeep::Upkeep;
use crate::{Cluster, Liveness, NodeRates};
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::code::Code;
use bunraku_compile::compiles::{CompileParts, CompileQueue, Compiler, Compiles, LeaseKeeper};
use bunraku_compile::environments::Environments;
use bunraku_compile::modules::Modules;
use bunraku_compile::releases::ReleaseWorker;
use bunraku_compile::{
    AgentFeed, CatalogDiffs, CommandHub, Contents, Queries, Releases, Repositories, TargetBoard,
};
use bunraku_control::former_keys::move_former_keys;
use bunraku_control::{
    Access, AuditLog, Certificates, Clock, Commands, ContentPlacement, Epoch, FactHooks,
    FactOptions, Facts, Metrics, Nodes, Presence, PresenceOptions, Reports, RestoreSigns,
    ServiceError,
};
use bunraku_cues::reactors::{FactNews, ReactorInbox, ReactorLinks};
use bunraku_cues::{Locks, Once, Reactors, Triggers};
use bunraku_orchestrate::{
    Approvals, Orchestration, OrchestrationLinks, Outputs, Plans, ReactorRunParts, ReactorRuns,
};

/// The parts that a server's services are built on.
pub struct WiringParts {
    pub store: SharedStore,
    pub blobs: SharedBlobs,
    pub clock: Clock,
    pub signer: SignerHandle,
    pub server: ServerId,
    /// Compiles every node, instead of the compiler that its environment names.
    pub compiler: Option<Box<dyn Compiler>>,
}

/// A background task. It ends when its token is cancelled, or when it is dropped.
pub(crate) type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The services of a server, before their background work has started.
pub(crate) struct Wiring {
    pub(crate) services: Services,
    upkeep: Upkeep,
    store_upkeep: StoreUpkeep,
    keeper: LeaseKeeper,
}

/// Reads even if the data may be stale. A read-only server is better than none, and it
/// follows all changes from there.
pub(crate) async fn even_without_majority<F: Future>(reading: F) -> F::Output {
    stale::allow(Permission::default(), reading).await
}

impl Wiring {
    /// Builds all services and registers the server. With an exclusive store, first removes
    /// what an earlier process on the same store left behind.
    pub(crate) async fn build(
        options: &ServiceOptions,
        parts: WiringParts,
    ) -> Result<Self, ServiceError> {
        if options.exclusive_store {
            bunraku_control::leader::remove_all(&parts.store).await?;
        }
        let store_upkeep = StoreUpkeep::new(
            parts.store.clone(),
            parts.clock.clone(),
            parts.server.to_string(),
            options.upkeep.store.clone(),
        );
        if parts.store.without_majority_for().is_none() {
            store_upkeep.make_room().await?;
        }
        even_without_majority(move_former_keys(&parts.store)).await?;
        let blobs = parts.blobs.clone();
        let has_majority = parts.store.without_majority_for().is_none();
        let services = Services::from(build_services(options, parts).await?);
        if has_majority {
            services.reports.choose_history().await?;
        }
        if options.exclusive_store {
            services.compiles.bury_claims().await?;
        }
        let upkeep = Upkeep {
            blobs,
            commands: services.commands.clone(),
            certificates: services.certificates.clone(),
            catalogs: services.catalogs.clone(),
            reports: services.reports.clone(),
            environments: services.environments.clone(),
            releases: services.releases.clone(),
            audit: services.audit.clone(),
            clock: services.clock.clone(),
            fleet: Arc::clone(&services.metrics.fleet),
            store_kind: options.store_kind,
            options: options.upkeep.clone(),
        };
        let keeper = LeaseKeeper::new(services.store.clone(), options.compiles.lease);
        Ok(Self {
            services,
            upkeep,
            store_upkeep,
            keeper,
        })
    }

    /// Returns all background work, for the caller to spawn. `revoked` is notified when a
    /// certificate was revoked, on any server.
    pub(crate) fn into_background(
        self,
        revoked: Arc<Notify>,
        stop: &CancellationToken,
    ) -> Vec<BackgroundTask> {
        let mut tasks = of_services(&self.services, stop);
        let (certificates, until) = (self.services.certificates.clone(), stop.clone());
        let (hub, trust) = (self.services.hub.clone(), Arc::clone(&revoked));
        tasks.push(Box::pin(async move {
            let changed = |role| {
                revoked.notify_one();
                // Agents only connect to servers. They learn of other revocations in time.
                if role == Some(Role::Server) {
                    hub.notify_authority();
                }
            };
            certificates.follow_revocations(changed, until).await;
        }));
        let (certificates, until) = (self.services.certificates.clone(), stop.clone());
        let hub = self.services.hub.clone();
        tasks.push(Box::pin(async move {
            let changed = || {
                trust.notify_one();
                hub.notify_authority();
            };
            certificates.follow_rotation(changed, until).await;
        }));
        let (upkeep, until) = (self.upkeep, stop.clone());
        tasks.push(Box::pin(async move { upkeep.run(until).await }));
        let (store_upkeep, until) = (self.store_upkeep, stop.clone());
        tasks.push(Box::pin(async move { store_upkeep.run(until).await }));
        tasks.extend(compiling(&self.services, self.keeper, stop));
        tasks
    }
}

/// Returns the work of taking part in compiles and deploys.
fn compiling(
    services: &Services,
    keeper: LeaseKeeper,
    stop: &CancellationToken,
) -> [BackgroundTask; 3] {
    let (compiles, lease, until) = (services.compiles.clone(), keeper.subscribe(), stop.clone());
    let compiling = Box::pin(async move { compiles.run(lease, until).await });
    let (environments, lease, until) = (
        services.environments.clone(),
        keeper.subscribe(),
        stop.clone(),
    );
    let deploying = Box::pin(async move { environments.run(lease, until).await });
    let until = stop.clone();
    let keeping = Box::pin(async move { keeper.run(&until).await });
    [compiling, deploying, keeping]
}

/// Returns the work of each service, except compiles, deploys and certificates.
fn of_services(services: &Services, stop: &CancellationToken) -> Vec<BackgroundTask> {
    let mut tasks: Vec<BackgroundTask> = Vec::new();
    let (audit, until) = (services.audit.clone(), stop.clone());
    tasks.push(Box::pin(async move { audit.run(until).await }));
    let (presence, until) = (services.presence.clone(), stop.clone());
    tasks.push(Box::pin(async move { presence.run(until).await }));
    let (placement, until) = (services.placement.clone(), stop.clone());
    tasks.push(Box::pin(async move { placement.run(until).await }));
    let (live, until) = (services.clone(), stop.clone());
    tasks.push(Box::pin(async move {
        (live.liveness)
            .run(&live.presence, &live.closing, &until)
            .await;
    }));
    let feed = AgentFeed {
        store: services.store.clone(),
        board: services.board.clone(),
        hub: services.hub.clone(),
    };
    let until = stop.clone();
    tasks.push(Box::pin(async move { feed.run(until).await }));
    let (commands, until) = (services.commands.clone(), stop.clone());
    tasks.push(Box::pin(async move {
        tokio::select! {
            () = commands.expire_on_time() => {}
            () = until.cancelled() => {}
        }
    }));
    let (triggers, until) = (services.triggers.clone(), stop.clone());
    tasks.push(Box::pin(async move { triggers.run(until).await }));
    let (reactors, until) = (services.reactors.clone(), stop.clone());
    tasks.push(Box::pin(async move { reactors.run(until).await }));
    let (reactor_runs, until) = (services.reactor_runs.clone(), stop.clone());
    tasks.push(Box::pin(async move { reactor_runs.run(until).await }));
    let (approvals, until) = (services.approvals.clone(), stop.clone());
    tasks.push(Box::pin(async move { approvals.run(until).await }));
    let (facts, metrics) = (services.facts.clone(), Arc::clone(&services.metrics));
    let until = stop.clone();
    tasks.push(Box::pin(
        async move { facts.run_workers(metrics, until).await },
    ));
    let (reports, until) = (services.reports.clone(), stop.clone());
    let server = services.identity.id.to_string();
    tasks.push(Box::pin(async move {
        reports.run_history(&server, until).await
    }));
    let (access, until) = (services.access.clone(), stop.clone());
    tasks.push(Box::pin(async move { access.run(until).await }));
    let (queries, until) = (services.queries.clone(), stop.clone());
    tasks.push(Box::pin(async move { queries.run(until).await }));
    let (orchestration, hub) = (services.orchestration.clone(), services.hub.clone());
    let until = stop.clone();
    tasks.push(Box::pin(async move {
        orchestration.notify_holds(hub, until).await
    }));
    let (cluster, hub) = (services.cluster.clone(), services.hub.clone());
    let until = stop.clone();
    tasks.push(Box::pin(
        async move { cluster.follow_members(hub, until).await },
    ));
    let (orchestration, until) = (services.orchestration.clone(), stop.clone());
    tasks.push(Box::pin(async move { orchestration.run(until).await }));
    let worker = ReleaseWorker {
        releases: services.releases.clone(),
        compiler: Arc::new(services.compiles.clone()),
        name: services.identity.id.to_string(),
    };
    let until = stop.clone();
    tasks.push(Box::pin(async move { worker.run(until).await }));
    let (repositories, until) = (services.repositories.clone(), stop.clone());
    let server = services.identity.id.to_string();
    tasks.push(Box::pin(
        async move { repositories.run(&server, until).await },
    ));
    tasks
}

async fn build_services(
    options: &ServiceOptions,
    parts: WiringParts,
) -> Result<ServiceSet, ServiceError> {
    let WiringParts {
        store,
        blobs,
        clock,
        signer,
        server: id,
        compiler,
    } = parts;
    let recoveries = options.cluster.as_ref().map(|link| link.0.view().epoch);
    let signs = RestoreSigns {
        was_copied: options.was_copied,
        recoveries: recoveries.unwrap_or(0),
    };
    let epoch = even_without_majority(Epoch::open(&store, &clock, signs)).await?;
    let presence_options = PresenceOptions {
        server_ttl: options.server_ttl,
        exclusive: options.exclusive_store,
        places: (ContentPlace::ALL.into_iter())
            .filter(|place| blobs.has_place(*place))
            .collect(),
    };
    let placement = even_without_majority(ContentPlacement::open(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        &id.to_string(),
        options.releases.leader_ttl,
        options.content_place,
    ))
    .await?;
    let inbox = even_without_majority(ReactorInbox::open(&store)).await?;
    let presence = Presence::start(
        store.clone(),
        clock.clone(),
        id,
        presence_options,
        Arc::new(inbox.clone()),
    )
    .await?;
    let audit = AuditLog::new(
        store.clone(),
        clock.clone(),
        id,
        &options.certificates.server_name,
        options.audit.clone(),
    );
    let nodes = Nodes::new(store.clone(), clock.clone()).with_recorder(Arc::new(inbox.clone()));
    let commands = Commands::new(store.clone(), clock.clone(), options.commands.clone());
    let revocations = Revocations::new([]);
    let metrics: Arc<Metrics> = Arc::default();
    let queue = Arc::new(CompileQueue::new(store.clone(), clock.clone()));
    let facts = Facts::new(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        FactOptions {
            server: id,
            ..options.facts.clone()
        },
        FactHooks {
            changed: Some(Arc::new(FactNews {
                first: queue.clone(),
                inbox: inbox.clone(),
            })),
            environment: Some(queue),
        },
    );
    let described = signer
        .describe()
        .await
        .map_err(|error| ServiceError::Unavailable {
            message: format!("{error}, and it has never described its CA to this server"),
            hint: "start the signer first".to_owned(),
        })?;
    let certificates = Certificates::new(
        store.clone(),
        clock.clone(),
        (signer, described),
        revocations.clone(),
        nodes.clone(),
        options.certificates.clone(),
    )
    .in_epoch(epoch.clone())
    .with_audit(audit.clone());
    let catalogs = Catalogs::new(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        options.catalogs.clone(),
    );
    let limits = bunraku_query::Limits::default();
    let reports = Reports::new(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        options.reports.clone(),
    )
    .with_history(blobs.clone(), options.history.clone())
    .with_recorder(Arc::new(inbox.clone()));
    let queries = Queries::new(store.clone(), blobs.clone(), reports.clone(), limits)
        .with_visible_facts(options.visible_facts.clone())
        .with_metrics(Arc::clone(&metrics.fleet));
    let code = Code::new(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        &options.data_dir,
        options.code.clone(),
    );
    let modules = Modules::new(
        store.clone(),
        blobs.clone(),
        clock.clone(),
        &options.data_dir,
    );
    let compile_parts = CompileParts {
        modules: modules.clone(),
        store: store.clone(),
        clock: clock.clone(),
        server: id,
        facts: facts.clone(),
        catalogs: catalogs.clone(),
        code: code.clone(),
        metrics: Arc::clone(&metrics.compiles),
        answers: Arc::new(queries.clone()),
        options: options.compiles.clone(),
    };
    let compiles = match compiler {
        None => Compiles::new(compile_parts),
        Some(compiler) => Compiles::with_one_compiler(compile_parts, compiler),
    };
    let releases = Releases::new(
        store.clone(),
        blobs.clone(),
        catalogs.clone(),
        clock.clone(),
        Arc::new(queries.clone()),
        options.releases.clone(),
    )
    .with_reactors(inbox.clone())
    .with_audit(audit.clone());
    let diffs = CatalogDiffs::new(
        store.clone(),
        blobs.clone(),
        catalogs.clone(),
        releases.clone(),
    );
    let plans = Plans::new(
        store.clone(),
        reports.clone(),
        releases.clone(),
        catalogs.clone(),
        diffs.clone(),
    )
    .with_facts(facts.clone());
    let orchestration = Orchestration::new(
        store.clone(),
        clock.clone(),
        id,
        options.orchestration.clone(),
        OrchestrationLinks {
            reports: reports.clone(),
            plans: plans.clone(),
            audit: audit.clone().into(),
            reactors: inbox.clone(),
            find_nodes: Arc::new(queries.clone()),
        },
    );
    let reactors = Reactors::new(
        store.clone(),
        clock.clone(),
        inbox,
        ReactorLinks {
            facts: facts.clone(),
            reports: reports.clone(),
            find_nodes: Arc::new(queries.clone()),
            metrics: Arc::clone(&metrics),
        },
    )
    .with_audit(audit.clone());
    let board = TargetBoard::new(store.clone());
    let environments =
        Environments::new(store.clone(), clock.clone(), code.clone(), compiles.clone())
            .with_audit(audit.clone());
    let outputs = Outputs::new(
        store.clone(),
        catalogs.clone(),
        board.clone(),
        orchestration.clone(),
    );
    let reactor_runs = ReactorRuns::new(ReactorRunParts {
        store: store.clone(),
        clock: clock.clone(),
        code: code.clone(),
        environments: environments.clone(),
        outputs: outputs.clone(),
        orchestration: orchestration.clone(),
        find_nodes: Arc::new(queries.clone()),
        audit: audit.clone().into(),
    });
    Ok(ServiceSet {
        access: Access::new(store.clone(), clock.clone(), Arc::new(queries.clone())),
        audit: audit.clone(),
        reactors,
        reactor_runs,
        approvals: Approvals::new(
            store.clone(),
            clock.clone(),
            releases.clone(),
            audit.clone().into(),
        ),
        outputs,
        modules,
        orchestration,
        triggers: Triggers::new(store.clone(), clock.clone(), Arc::clone(&metrics))
            .with_queries(Arc::new(queries.clone())),
        diffs,
        plans,
        contents: Contents::new(blobs.clone(), catalogs.clone()),
        once: Once::new(store.clone(), clock.clone())
            .on_server(epoch.clone(), Arc::new(queries.clone())),
        locks: Locks::new(store.clone(), clock.clone()).on_server(epoch, Arc::new(queries.clone())),
        queries,
        board: board.clone(),
        catalogs,
        releases,
        reports,
        facts,
        repositories: Repositories::new(
            store.clone(),
            clock.clone(),
            code,
            environments.clone(),
            options.releases.leader_ttl,
        )
        .with_audit(audit.clone()),
        environments,
        compiles,
        hub: CommandHub::new(commands.clone(), board),
        cluster: Cluster::new(
            store.clone(),
            clock.clone(),
            certificates.clone(),
            options.cluster.clone(),
            audit.clone().into(),
        ),
        certificates,
        identity: Arc::new(ServerIdentity {
            id,
            name: options.certificates.server_name.clone(),
            started: clock.now(),
            store: options.store_kind,
        }),
        metrics,
        closing: TaskTracker::new(),
        shutdown: CancellationToken::new(),
        store,
        nodes,
        commands,
        presence,
        placement,
        liveness: Liveness::new(options.agent_silence),
        rates: NodeRates::new(options.rates.clone()),
        revocations,
        clock,
        heartbeat: options.heartbeat,
    })
}
