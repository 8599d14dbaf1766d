//! A server: the services wired together, listening until shutdown.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{NodeName, Role, ServerId};
use bunraku_signer::SignerHandle;
use bunraku_store::blobs::SharedBlobs;
use bunraku_store::{SharedStore, StoreError};
use bunraku_wire::api::AuditOutcome;
use bunraku_wire::tls::{Identity, ServerTls};
use bunraku_wire::{Credentials, ReloadableServerTls};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::credentials::{self, RequiredIdentity};
use crate::http::{self, AcceptOptions, RouterOptions};
use crate::service_options::ServiceOptions;
use crate::services::Services;
use crate::wiring::{Wiring, WiringParts, even_without_majority};
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::Compiles;
use bunraku_compile::environments::Environments;
use bunraku_control::{AuditAction, Clock, ServiceError};

/// Interval at which the server checks the age of its own and its peers' certificates.
const LOOK: Duration = Duration::from_secs(60);

/// Longest time that a start or stop waits for its audit record.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);

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
    /// Address for health and metrics without TLS, for probes on the same machine.
    pub health_listen: Option<SocketAddr>,
    pub services: ServiceOptions,
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
    #[error("health and metrics are served without TLS and need a loopback address, not {0}")]
    HealthAddress(SocketAddr),
    #[error("cannot set up TLS")]
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
                StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_) | StoreError::Full(_)
            ))
        )
    }

    /// Returns `true` if the datastores are full. Each attempt to start makes room.
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Service(ServiceError::Store(StoreError::Full(_)))
        )
    }
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    health_address: Option<SocketAddr>,
    services: Services,
    name: NodeName,
    tasks: TaskTracker,
    /// Ends the background work, after connections have ended.
    background: CancellationToken,
    connections: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts everything. When this returns, the server answers requests. While no majority
    /// of the datastores answers, it is read-only and registers later.
    pub async fn start(
        mut options: ServerOptions,
        store: SharedStore,
        blobs: SharedBlobs,
        signer: impl Into<SignerHandle>,
        clock: Clock,
    ) -> Result<Self, StartError> {
        options.services.certificates.server_name = options.name.to_string();
        let listener = listen(options.listen).await?;
        let address = local_address(&listener, options.listen)?;
        let parts = WiringParts {
            store,
            blobs,
            clock,
            signer: signer.into(),
            server: ServerId(Uuid::new_v4()),
            compiler: None,
        };
        let wiring = Wiring::build(&options.services, parts).await?;
        let services = wiring.services.clone();
        services.certificates.recover_revocations().await?;
        even_without_majority(services.certificates.read_revocations()).await?;
        apply_rotation(&services).await?;
        let tls = Tls::prepare(&options, &services).await?;
        let (background, tasks) = (CancellationToken::new(), TaskTracker::new());
        let revoked = Arc::new(Notify::new());
        for task in wiring.into_background(Arc::clone(&revoked), &background) {
            tasks.spawn(task);
        }
        let (look_again, doubts) = watch::channel(0_u64);
        tasks.spawn(keep_tls_current(
            services.clone(),
            tls.clone(),
            revoked,
            look_again,
            background.clone(),
        ));
        let health_address = start_health(&options, &services, &tasks, &background).await?;
        let serving = http::Serving {
            router: http::router(&services, &options.router),
            tls: tls.reloadable.clone(),
            revocations: services.revocations.clone(),
            doubts,
            clock: services.clock.clone(),
            metrics: Arc::clone(&services.metrics),
            options: options.accept.clone(),
            shutdown: services.shutdown.clone(),
        };
        record(&services, "start-server", &options.name).await;
        let connections = tokio::spawn(http::serve(listener, serving));
        tracing::info!(%address, id = %services.identity.id, name = %options.name, "the server is up");
        Ok(Self {
            address,
            health_address,
            services,
            name: options.name,
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
        tracing::info!("the server is shutting down");
        self.services.shutdown.cancel();
        if let Err(error) = self.connections.await {
            tracing::error!(error = %error, "serving connections failed");
        }
        self.services.closing.close();
        self.services.closing.wait().await;
        record(&self.services, "stop-server", &self.name).await;
        self.background.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.services.presence.leave().await {
            tracing::warn!(error = %error, "cannot unregister this server");
        }
        tracing::info!("the server is down");
    }
}

/// Records that a server starts or stops. Without a majority of the datastores, it is only logged.
async fn record(services: &Services, action: &str, name: &NodeName) {
    if services.store.without_majority_for().is_none() {
        let action = AuditAction::new(action)
            .on("server", name)
            .detail("version", env!("CARGO_PKG_VERSION"));
        let recorded = services
            .audit
            .record_or_warn(action, AuditOutcome::Succeeded);
        if tokio::time::timeout(RECORD_PATIENCE, recorded)
            .await
            .is_err()
        {
            tracing::warn!("recording in the audit log takes too long");
        }
    }
}

/// Brings the signer to the state of a rotation of the CA, before this server presents a
/// certificate. Without the signer or the datastores, that happens later.
async fn apply_rotation(services: &Services) -> Result<(), ServiceError> {
    match services.certificates.apply_rotation(&|| {}).await {
        Err(error @ (ServiceError::Unavailable { .. } | ServiceError::Store(_))) => {
            tracing::warn!(error = %error, "cannot look for a rotation of the CA yet");
            Ok(())
        }
        applied => applied,
    }
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
        ensure_operator(options, services).await?;
        let credentials = Credentials::new(options.services.data_dir.join("tls"));
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
        // Trust a new CA first: a new certificate of it may be used at once.
        if let Ok(Some(identity)) = self.credentials.identity() {
            let tls = server_tls(identity, services).await?;
            self.reloadable.reload(&tls).map_err(StartError::Tls)?;
        }
        ensure_operator(&self.options, services).await?;
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
            tracing::error!(error = %error, "cannot reload TLS; keeping the previous configuration");
        }
    }
}

/// Creates or renews the operator credentials of this server.
async fn ensure_operator(options: &ServerOptions, services: &Services) -> Result<(), ServiceError> {
    let operator = Credentials::new(options.services.data_dir.join("operator"));
    let name = NodeName::new(format!("operator.{}", options.name)).map_err(|error| {
        ServiceError::invalid(format!("the server's name is too long: {error}"))
    })?;
    let wanted = RequiredIdentity {
        name: &name,
        role: Role::Operator,
        server_names: &[],
    };
    match credentials::ensure(&operator, &services.certificates, &services.clock, &wanted).await {
        // The signer may leave this to other operators, or be away.
        Err(error @ (ServiceError::Forbidden { .. } | ServiceError::Unavailable { .. })) => {
            tracing::warn!(error = %error, "cannot create or renew the operator credentials of this server");
            Ok(())
        }
        ensured => ensured.map(drop),
    }
}

async fn own_identity(
    credentials: &Credentials,
    options: &ServerOptions,
    services: &Services,
) -> Result<Identity, ServiceError> {
    let wanted = RequiredIdentity {
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
    let list = match services.certificates.revocation_lists_pem().await {
        // Every request is checked against the stored revocations anyway.
        Err(ServiceError::Unavailable { message, .. }) => {
            tracing::warn!(message, "continuing without a signed revocation list");
            String::new()
        }
        list => list?,
    };
    Ok(ServerTls {
        identity,
        authority_pem: services.certificates.authority_pem(),
        revocation_lists_pem: list,
    })
}

/// Loads renewed certificates and revocation lists until the server stops.
async fn keep_tls_current(
    services: Services,
    tls: Tls,
    revoked: Arc<Notify>,
    look_again: watch::Sender<u64>,
    stop: CancellationToken,
) {
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
            tracing::error!(error = %error, "serving health checks failed");
        }
    });
    Ok(Some(address))
}
