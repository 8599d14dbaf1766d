//! A server: the services wired together, listening until shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{NodeName, Role, ServerId};
use bunraku_store::stale::{self, Permission};
use bunraku_store::{SharedStore, StoreError};
use bunraku_wire::tls::{Identity, ServerTls};
use bunraku_wire::{Authority, Credentials, ReloadableServerTls, Revocations};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::credentials::{self, Wanted};
use crate::http::{self, AcceptOptions, RouterOptions, ServerIdentity, ServiceSet, Services};
use crate::upkeep::Upkeep;
use crate::{Cluster, ClusterLink, UpkeepOptions};
use bunraku_compile::catalogs::{CatalogOptions, Catalogs};
use bunraku_compile::code::{Code, CodeOptions};
use bunraku_compile::compiles::{
    CompileOptions, CompileParts, CompileQueue, Compiles, LeaseKeeper,
};
use bunraku_compile::environments::Environments;
use bunraku_compile::modules::Modules;
use bunraku_compile::releases::ReleaseWorker;
use bunraku_compile::{
    CatalogDiffs, CommandHub, Contents, Queries, ReleaseOptions, Releases, TargetBoard,
};
use bunraku_control::{
    CertificateOptions, Certificates, Clock, CommandOptions, Commands, FactHooks, FactOptions,
    Facts, Metrics, Nodes, Presence, PresenceOptions, ReportOptions, Reports, ServiceError,
};
use bunraku_cues::reactors::{FactNews, ReactorInbox};
use bunraku_cues::{Locks, Once, Reactors, Triggers};
use bunraku_orchestrate::{Orchestration, OrchestrationOptions};

/// Interval at which the server checks the age of its own and its peers' certificates.
const LOOK: Duration = Duration::from_secs(60);

/// Age at which a revocation list is replaced, long before it expires.
const LIST_AGE: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// All settings of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub listen: SocketAddr,
    /// The name in its certificate.
    pub name: NodeName,
    /// Names and addresses at which others reach it.
    pub server_names: Vec<String>,
    /// Directory of the credentials of the server and its first operator.
    pub data_dir: PathBuf,
    /// Address for health and metrics without TLS, for probes on the same machine.
    pub health_listen: Option<SocketAddr>,
    /// `true` if no other process can have the store open.
    pub exclusive_store: bool,
    pub store_kind: &'static str,
    /// Silence after which a server counts as dead.
    pub server_ttl: Duration,
    /// Interval of empty lines on a silent command stream.
    pub heartbeat: Duration,
    /// This server's cluster member, if any.
    pub cluster: Option<ClusterLink>,
    pub certificates: CertificateOptions,
    pub commands: CommandOptions,
    pub facts: FactOptions,
    pub catalogs: CatalogOptions,
    pub code: CodeOptions,
    pub compiles: CompileOptions,
    pub releases: ReleaseOptions,
    pub reports: ReportOptions,
    pub orchestration: OrchestrationOptions,
    pub upkeep: UpkeepOptions,
    pub router: RouterOptions,
    pub accept: AcceptOptions,
}

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("health and metrics without TLS are for loopback addresses only, not {0}")]
    HealthAddress(SocketAddr),
    #[error("TLS cannot be set up")]
    Tls(#[source] bunraku_wire::tls::TlsError),
    #[error("a service did not start")]
    Service(#[from] ServiceError),
}

impl StartError {
    /// Returns `true` if the datastores did not answer, so that a later attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Service(ServiceError::Store(
                StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_)
            ))
        )
    }
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    health_address: Option<SocketAddr>,
    services: Services,
    tasks: TaskTracker,
    /// Ends the background work, after connections have ended.
    background: CancellationToken,
    connections: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts everything. When this returns, the server answers requests. While no majority
    /// of the datastores answers, it is read-only and registers later.
    pub async fn start(
        options: ServerOptions,
        store: SharedStore,
        blobs: bunraku_store::blobs::SharedBlobs,
        authority: Arc<Authority>,
        clock: Clock,
    ) -> Result<Self, StartError> {
        let listener = listen(options.listen).await?;
        let address = local_address(&listener, options.listen)?;
        let upkeep_blobs = blobs.clone();
        let services = build_services(&options, store, blobs, authority, clock).await?;
        even_without_majority(services.certificates.read_revocations()).await?;
        let tls = Tls::prepare(&options, &services).await?;
        let (background, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (look_again, doubts) = watch::channel(0_u64);
        spawn_background(&services, &tls, look_again, &tasks, &background);
        let upkeep = Upkeep {
            store: services.store.clone(),
            blobs: upkeep_blobs,
            commands: services.commands.clone(),
            catalogs: services.catalogs.clone(),
            reports: services.reports.clone(),
            environments: services.environments.clone(),
            clock: services.clock.clone(),
            options: options.upkeep.clone(),
        };
        let stop = background.clone();
        tasks.spawn(async move { upkeep.run(stop).await });
        start_compiling(&options, &services, &tasks, &background).await?;
        let health_address = start_health(&options, &services, &tasks, &background).await?;
        let connections = tokio::spawn(http::serve(
            listener,
            http::router(&services, &options.router),
            tls.reloadable.clone(),
            services.revocations.clone(),
            doubts,
            services.clock.clone(),
            Arc::clone(&services.metrics),
            options.accept.clone(),
            services.shutdown.clone(),
        ));
        tracing::info!(%address, id = %services.identity.id, name = %options.name, "the server is up");
        Ok(Self {
            address,
            health_address,
            services,
            tasks,
            background,
            connections,
        })
    }

    /// Returns the listening address, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health_address
    }

    /// Returns the stored catalogs.
    pub fn catalogs(&self) -> &Catalogs {
        &self.services.catalogs
    }

    pub fn compiles(&self) -> &Compiles {
        &self.services.compiles
    }

    pub fn environments(&self) -> &Environments {
        &self.services.environments
    }

    pub fn ca_fingerprint(&self) -> String {
        self.services.certificates.ca_fingerprint()
    }

    /// Lets open requests finish, completes pending writes, and stops.
    pub async fn shutdown(self) {
        tracing::info!("the server shuts down");
        self.services.shutdown.cancel();
        if let Err(error) = self.connections.await {
            tracing::error!(error = %error, "serving connections ended badly");
        }
        self.services.closing.close();
        self.services.closing.wait().await;
        self.background.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.services.presence.leave().await {
            tracing::warn!(error = %error, "cannot take this server off the list");
        }
        tracing::info!("the server is down");
    }
}

/// Reads even if the data may be stale. A read-only server is better than none, and it
/// follows all changes from there.
async fn even_without_majority<F: Future>(reading: F) -> F::Output {
    stale::allow(Permission::default(), reading).await
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

fn local_address(listener: &TcpListener, asked: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen {
        address: asked,
        source,
    })
}

async fn build_services(
    options: &ServerOptions,
    store: SharedStore,
    blobs: bunraku_store::blobs::SharedBlobs,
    authority: Arc<Authority>,
    clock: Clock,
) -> Result<Services, ServiceError> {
    if options.exclusive_store {
        bunraku_control::leader::bury(&store).await?;
    }
    let id = ServerId(Uuid::new_v4());
    let presence_options = PresenceOptions {
        server_ttl: options.server_ttl,
        exclusive: options.exclusive_store,
    };
    let inbox = even_without_majority(ReactorInbox::open(&store)).await?;
    let presence = Presence::start(
        store.clone(),
        clock.clone(),
        id,
        presence_options,
        Arc::new(inbox.clone()),
    )
    .await?;
    let nodes = Nodes::new(store.clone(), clock.clone());
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
    let certificates = Certificates::new(
        store.clone(),
        clock.clone(),
        authority,
        revocations.clone(),
        nodes.clone(),
        options.certificates.clone(),
    );
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
    .with_recorder(Arc::new(inbox.clone()));
    let queries = Queries::new(store.clone(), blobs.clone(), reports.clone(), limits);
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
    let compiles = Compiles::new(CompileParts {
        modules: modules.clone(),
        store: store.clone(),
        clock: clock.clone(),
        server: id,
        facts: facts.clone(),
        catalogs: catalogs.clone(),
        code: code.clone(),
        metrics: Arc::clone(&metrics.compiles),
        options: options.compiles.clone(),
    });
    let releases = Releases::new(
        store.clone(),
        blobs.clone(),
        catalogs.clone(),
        clock.clone(),
        Arc::new(queries.clone()),
        options.releases.clone(),
    );
    let orchestration = Orchestration::new(
        store.clone(),
        clock.clone(),
        id,
        reports.clone(),
        releases.clone(),
        options.orchestration.clone(),
    );
    let reactors = Reactors::new(
        store.clone(),
        clock.clone(),
        inbox,
        facts.clone(),
        reports.clone(),
        Arc::new(queries.clone()),
        Arc::clone(&metrics),
    );
    let board = TargetBoard::new(store.clone());
    let services = ServiceSet {
        reactors,
        outputs: bunraku_orchestrate::Outputs::new(
            store.clone(),
            catalogs.clone(),
            board.clone(),
            orchestration.clone(),
        ),
        modules,
        orchestration,
        triggers: Triggers::new(store.clone(), clock.clone(), Arc::clone(&metrics))
            .with_queries(Arc::new(queries.clone())),
        diffs: CatalogDiffs::new(
            store.clone(),
            blobs.clone(),
            catalogs.clone(),
            releases.clone(),
        ),
        contents: Contents::new(blobs.clone(), catalogs.clone()),
        once: Once::new(store.clone(), clock.clone()).with_queries(Arc::new(queries.clone())),
        queries,
        board: board.clone(),
        catalogs,
        releases,
        reports,
        locks: Locks::new(store.clone(), clock.clone()),
        facts,
        environments: Environments::new(store.clone(), clock.clone(), code, compiles.clone()),
        compiles,
        hub: CommandHub::new(store.clone(), commands.clone(), board),
        cluster: Cluster::new(
            store.clone(),
            clock.clone(),
            certificates.clone(),
            options.cluster.clone(),
        ),
        certificates,
        identity: Arc::new(ServerIdentity {
            id,
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
        revocations,
        clock,
        heartbeat: options.heartbeat,
    };
    Ok(services.into())
}

/// Takes part in compiling and deploying until the background work ends.
async fn start_compiling(
    options: &ServerOptions,
    services: &Services,
    tasks: &TaskTracker,
    background: &CancellationToken,
) -> Result<(), ServiceError> {
    if options.exclusive_store {
        services.compiles.bury_claims().await?;
    }
    let keeper = LeaseKeeper::new(services.store.clone(), options.compiles.lease);
    let (compiles, environments) = (services.compiles.clone(), services.environments.clone());
    let (for_compiles, for_deploys) = (keeper.subscribe(), keeper.subscribe());
    let stop = background.clone();
    tasks.spawn(async move { keeper.run(&stop).await });
    let stop = background.clone();
    tasks.spawn(async move { compiles.run(for_compiles, stop).await });
    let stop = background.clone();
    tasks.spawn(async move { environments.run(for_deploys, stop).await });
    Ok(())
}

/// The server's TLS, and the parts to rebuild it from when something changes.
#[derive(Clone)]
struct Tls {
    reloadable: ReloadableServerTls,
    credentials: Credentials,
    options: Arc<ServerOptions>,
    /// Creation time of the revocation list.
    listed: Arc<Mutex<jiff::Timestamp>>,
}

impl Tls {
    async fn prepare(options: &ServerOptions, services: &Services) -> Result<Self, StartError> {
        let operator = Credentials::new(options.data_dir.join("operator"));
        let operator_name =
            NodeName::new(format!("operator.{}", options.name)).map_err(|error| {
                ServiceError::invalid(format!("the server's name is too long: {error}"))
            })?;
        let wanted = Wanted {
            name: &operator_name,
            role: Role::Operator,
            server_names: &[],
        };
        credentials::ensure(&operator, &services.certificates, &services.clock, &wanted).await?;
        let credentials = Credentials::new(options.data_dir.join("tls"));
        let identity = own_identity(&credentials, options, services).await?;
        let tls = even_without_majority(server_tls(identity, services)).await?;
        let reloadable = ReloadableServerTls::new(&tls).map_err(StartError::Tls)?;
        Ok(Self {
            reloadable,
            credentials,
            options: Arc::new(options.clone()),
            listed: Arc::new(Mutex::new(services.clock.now())),
        })
    }

    /// Loads a renewed certificate and a new revocation list.
    async fn reload(&self, services: &Services) -> Result<(), StartError> {
        let identity = own_identity(&self.credentials, &self.options, services).await?;
        let tls = server_tls(identity, services).await?;
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = services.clock.now();
        self.reloadable.reload(&tls).map_err(StartError::Tls)
    }

    /// Returns `true` if the certificate or the revocation list is due for renewal.
    fn is_due(&self, services: &Services) -> bool {
        let now = services.clock.now();
        let listed = *self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = self.credentials.identity().ok().flatten();
        now.duration_since(listed) > LIST_AGE
            || ends.is_none_or(|identity| identity.certificate().needs_renewal(now, 0.0))
    }

    async fn reload_or_warn(&self, services: &Services) {
        if let Err(error) = self.reload(services).await {
            tracing::error!(error = %error, "TLS goes on as it was");
        }
    }
}

async fn own_identity(
    credentials: &Credentials,
    options: &ServerOptions,
    services: &Services,
) -> Result<Identity, ServiceError> {
    let wanted = Wanted {
        name: &options.name,
        role: Role::Server,
        server_names: &options.server_names,
    };
    credentials::ensure(
        credentials,
        &services.certificates,
        &services.clock,
        &wanted,
    )
    .await
}

async fn server_tls(identity: Identity, services: &Services) -> Result<ServerTls, ServiceError> {
    let list = services.certificates.revocation_lists_pem().await?;
    Ok(ServerTls {
        identity,
        authority_pem: services.certificates.authority_pem(),
        revocation_lists_pem: list,
    })
}

fn spawn_background(
    services: &Services,
    tls: &Tls,
    look_again: watch::Sender<u64>,
    tasks: &TaskTracker,
    background: &CancellationToken,
) {
    let (presence, hub) = (services.presence.clone(), services.hub.clone());
    let stop = background.clone();
    tasks.spawn(async move { presence.run(stop).await });
    let stop = background.clone();
    tasks.spawn(async move { hub.run(stop).await });
    let (triggers, stop) = (services.triggers.clone(), background.clone());
    tasks.spawn(async move { triggers.run(stop).await });
    let (reactors, stop) = (services.reactors.clone(), background.clone());
    tasks.spawn(async move { reactors.run(stop).await });
    let (facts, metrics) = (services.facts.clone(), Arc::clone(&services.metrics));
    let stop = background.clone();
    tasks.spawn(async move { facts.run_workers(metrics, stop).await });
    let (queries, stop) = (services.queries.clone(), background.clone());
    tasks.spawn(async move { queries.run(stop).await });
    let (board, hub) = (services.board.clone(), services.hub.clone());
    let stop = background.clone();
    tasks.spawn(async move { board.run(|node| hub.tell_target(node), stop).await });
    let (orchestration, hub) = (services.orchestration.clone(), services.hub.clone());
    let stop = background.clone();
    tasks.spawn(async move { orchestration.tell_holds(hub, stop).await });
    let (cluster, hub) = (services.cluster.clone(), services.hub.clone());
    let stop = background.clone();
    tasks.spawn(async move { cluster.follow_members(hub, stop).await });
    let orchestration = services.orchestration.clone();
    let stop = background.clone();
    tasks.spawn(async move { orchestration.run(stop).await });
    let worker = ReleaseWorker {
        releases: services.releases.clone(),
        name: services.identity.id.to_string(),
    };
    let stop = background.clone();
    tasks.spawn(async move { worker.run(stop).await });
    let (certificates, stop) = (services.certificates.clone(), background.clone());
    let revoked = Arc::new(Notify::new());
    let tell = Arc::clone(&revoked);
    tasks.spawn(async move {
        certificates
            .follow_revocations(|| tell.notify_one(), stop)
            .await;
    });
    let (services, tls, stop) = (services.clone(), tls.clone(), background.clone());
    tasks.spawn(async move {
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = tokio::select! {
                () = stop.cancelled() => return,
                () = revoked.notified() => true,
                _ = tick.tick() => tls.is_due(&services),
            };
            // Also at every tick, because certificates of open connections expire as time
            // passes.
            look_again.send_modify(|count| *count += 1);
            if due {
                tls.reload_or_warn(&services).await;
            }
        }
    });
}

/// Serves `/healthz`, `/readyz` and `/metrics` without TLS, on loopback only.
async fn start_health(
    options: &ServerOptions,
    services: &Services,
    tasks: &TaskTracker,
    background: &CancellationToken,
) -> Result<Option<SocketAddr>, StartError> {
    let Some(asked) = options.health_listen else {
        return Ok(None);
    };
    if !asked.ip().is_loopback() {
        return Err(StartError::HealthAddress(asked));
    }
    let listener = listen(asked).await?;
    let address = local_address(&listener, asked)?;
    let router = http::health_router(services);
    let stop = background.clone();
    tasks.spawn(async move {
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = serving.await {
            tracing::error!(error = %error, "serving health ended badly");
        }
    });
    Ok(Some(address))
}
