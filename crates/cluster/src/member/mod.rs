//! A running member of the cluster.
//!
//! [`Member::start`] does not need a store: it listens, gossips, and runs the
//! datastore that this server was ordered to run. [`Member::connect_store`] waits
//! until a majority of datastores answers, or a single one when there is no
//! majority. [`Member::attach`] then follows the documents in the store, and takes
//! part in the election of the server that changes the datastores.

mod actor;
mod answers;
mod documents;
mod follow;
mod gossip;
mod inspection;
mod programs;
mod records;
mod renewal;
mod start;
mod view;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::etcd::{EtcdOptions, EtcdStore, EtcdTls};
use bunraku_wire::api::cluster::{
    AuthorityFiles, ClusterView, ClusterWelcome, MemberRecord, MemberState, MemberView,
    RemovedMember,
};
use bunraku_wire::tls::TlsError;
use bunraku_wire::{ReloadableClientTls, ReloadableServerTls};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::datastore::{Admin, DatastoreOrder, DatastoreState, Inspector, Program, View};
use crate::directory::{Directory, DirectoryError, KnownPeers, LocalMember};
use crate::failover::Limits;
use crate::identity::{self, IdentityError, MemberTls};
use crate::membership::SwimOptions;
use crate::transport::{Dialer, ListenError};

/// The waiting time for a store with a majority, before using one without.
/// Datastores that all start at once have elected a leader by then.
const MAJORITY: Duration = Duration::from_secs(10);

/// The prefix of every key in the cluster's own etcd.
pub const ROOT: &str = "/bunraku/";

/// The settings of a member.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    pub data_dir: PathBuf,
    /// The address on which it listens for members, and its datastore for clients and peers.
    pub listen: IpAddr,
    pub etcd: PathBuf,
    pub etcdctl: PathBuf,
    pub etcd_heartbeat: Duration,
    pub etcd_election: Duration,
    /// Additional flags for etcd.
    pub etcd_flags: Vec<String>,
    pub swim: SwimOptions,
    pub limits: Limits,
    /// The interval at which the elected server looks when nothing notifies it.
    pub check_interval: Duration,
    /// The time that the elected server may be silent before another one is elected.
    pub leader_ttl: Duration,
    pub snapshot_every: Duration,
    pub snapshots_kept: usize,
    /// The lifetime of its certificate for other members; renewed after two thirds.
    pub certificate_lifetime: SignedDuration,
}

impl MemberOptions {
    pub fn new(data_dir: PathBuf) -> Self {
        Self {
            data_dir,
            listen: IpAddr::from([0, 0, 0, 0]),
            etcd: PathBuf::from("/usr/bin/etcd"),
            etcdctl: PathBuf::from("/usr/bin/etcdctl"),
            etcd_heartbeat: Duration::from_millis(100),
            etcd_election: Duration::from_secs(1),
            etcd_flags: Vec::new(),
            swim: SwimOptions::default(),
            limits: Limits::default(),
            check_interval: Duration::from_secs(1),
            leader_ttl: Duration::from_secs(5),
            snapshot_every: Duration::from_secs(6 * 3600),
            snapshots_kept: 8,
            certificate_lifetime: identity::LIFETIME,
        }
    }
}

/// The reason why a member does not run.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error("this server is not a member of a cluster")]
    NotAMember,
    #[error("this server was removed from its cluster at {at} by `{by}`")]
    Removed { at: Timestamp, by: String },
    #[error("cannot read this member's state")]
    Directory(#[from] DirectoryError),
    #[error("this member has no certificate")]
    Identity(#[from] IdentityError),
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("`{0}` is not HOST:PORT")]
    Address(String),
}

/// A running member. Cheap to clone; all clones are the same member.
#[derive(Clone)]
pub struct Member {
    shared: Arc<Shared>,
}

struct Shared {
    me: LocalMember,
    directory: Directory,
    options: MemberOptions,
    program: Program,
    inspector: Inspector,
    tls: Mutex<MemberTls>,
    server_tls: ReloadableServerTls,
    client_tls: ReloadableClientTls,
    known: Mutex<KnownPeers>,
    orders: watch::Sender<Option<DatastoreOrder>>,
    state: watch::Receiver<DatastoreState>,
    epoch: watch::Sender<u64>,
    sights: watch::Receiver<gossip::PeerStates>,
    waiting: Mutex<Option<String>>,
    datastores: watch::Sender<Datastores>,
    /// Set once the store answers: it has to use new certificates.
    store: Mutex<Option<EtcdStore>>,
    /// The URL of a read-only copy of its own data, while the datastore does not answer.
    view: Mutex<Option<String>>,
    /// Set, with the reason, when this process must exit and restart.
    restart_reason: watch::Sender<Option<String>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The newest known state of the datastores, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Datastores {
    voters: usize,
    healthy: usize,
    changes: u64,
}

impl Datastores {
    fn of(documents: &documents::Documents) -> Self {
        let voters = || documents.datastores.iter().filter(|it| !it.learner);
        Self {
            voters: voters().count(),
            healthy: voters().filter(|it| it.healthy).count(),
            changes: documents.plan.number,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn name(&self) -> &NodeName {
        &self.me.record.name
    }

    fn admin(&self) -> Admin {
        Admin::new(self.etcd_tls())
    }

    fn etcd_tls(&self) -> EtcdTls {
        locked(&self.tls).etcd().clone()
    }

    fn dialer(&self) -> Dialer {
        Dialer {
            tls: self.client_tls.clone(),
            cluster: self.me.cluster.clone(),
            epoch: self.epoch.subscribe(),
        }
    }

    fn known(&self) -> KnownPeers {
        locked(&self.known).clone()
    }

    /// The endpoints of possible datastores: the known ones, or else every member.
    fn endpoints(&self) -> Vec<String> {
        let known = self.known();
        let mut endpoints = known.endpoints;
        if self.orders.borrow().is_some() {
            endpoints.insert(0, self.me.record.client_url.clone());
        }
        if endpoints.is_empty() {
            let members = known.members.iter();
            endpoints.extend(members.map(|member| member.client_url.clone()));
        }
        // Its own comes first: a datastore on this machine is nearest.
        let mut seen = std::collections::BTreeSet::new();
        endpoints.retain(|endpoint| seen.insert(endpoint.clone()));
        endpoints
    }

    fn store_options(&self) -> EtcdOptions {
        let mut options = EtcdOptions::new(self.endpoints(), ROOT);
        options.tls = Some(self.etcd_tls());
        options.copy = locked(&self.view).clone();
        options.request_timeout = Duration::from_secs(3);
        options
    }

    /// Ends this server's membership. The record of that holds for every later start.
    fn end_as_removed(&self, removed: &RemovedMember) {
        if let Err(error) = self.directory.write_removed(removed) {
            tracing::error!(error = %error, "cannot record the removal of this server");
        }
        if let Err(error) = self.directory.write_order(None) {
            tracing::error!(error = %error, "cannot store an order");
        }
        self.orders.send_replace(None);
        self.begin_anew("this server was removed from the cluster");
    }

    /// Requests an exit and restart: the state in memory is outdated.
    fn begin_anew(&self, why: &str) {
        tracing::error!(why, "restarting this server");
        self.restart_reason.send_replace(Some(why.to_owned()));
    }
}

impl Member {
    pub fn name(&self) -> &NodeName {
        self.shared.name()
    }

    pub fn record(&self) -> &MemberRecord {
        &self.shared.me.record
    }

    pub fn cluster(&self) -> &str {
        &self.shared.me.cluster
    }

    /// Connects to the store on the datastores. Waits until one answers, without a
    /// time limit. Without a majority, the store can only be read, where that is
    /// allowed.
    pub async fn connect_store(&self) -> EtcdStore {
        let mut said = false;
        let begun = tokio::time::Instant::now();
        let mut view = None;
        View::discard_leftover(&self.shared.directory);
        loop {
            let options = EtcdOptions {
                retry_for: Duration::from_secs(3),
                ..self.shared.store_options()
            };
            let connected = if begun.elapsed() < MAJORITY {
                EtcdStore::connect(options).await
            } else {
                EtcdStore::connect_even_to_one(options).await
            };
            match connected {
                Ok(store) => {
                    let lasting = self.shared.store_options();
                    if store.reconfigure(&lasting).await.is_ok() {
                        let shared = Arc::clone(&self.shared);
                        self.spawn(view::keep_open(shared, store.clone(), view));
                        return store;
                    }
                }
                Err(_) if begun.elapsed() > MAJORITY && view.is_none() => {
                    view = view::open(&self.shared).await;
                    if view.is_none() {
                        tokio::time::sleep(MAJORITY).await;
                    }
                }
                Err(error) if !said => {
                    said = true;
                    tracing::warn!(error = %error, endpoints = ?self.shared.endpoints(), "waiting for a majority of the datastores; if it is lost for good, see `bunraku cluster recover`");
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Returns this member's view of the others.
    pub fn view(&self) -> ClusterView {
        let sights = self.shared.sights.borrow().clone();
        let datastores = *self.shared.datastores.borrow();
        let own = MemberView {
            name: self.name().clone(),
            state: MemberState::Alive,
            since: gossip::time_of(sights.begun),
            said_by: self.name().clone(),
        };
        let known = self.shared.known();
        let is_member = |seen: &MemberView| known.members.iter().any(|it| it.name == seen.name);
        let seen = sights.members.into_iter().map(|(name, one)| MemberView {
            name,
            state: one.state,
            since: gossip::time_of(one.since),
            said_by: one.said_by,
        });
        let mut members: Vec<MemberView> = seen.collect();
        // Removed members are left out.
        members.retain(is_member);
        members.push(own);
        members.sort_by(|one, other| one.name.cmp(&other.name));
        ClusterView {
            seen_by: self.name().clone(),
            epoch: *self.shared.epoch.borrow(),
            health_score: sights.health_score,
            members,
            waiting: locked(&self.shared.waiting).clone(),
            datastores: datastores.voters,
            datastores_healthy: datastores.healthy,
            changes: datastores.changes,
        }
    }

    /// Returns the servers that nodes can connect to: every member that is to stay.
    pub fn servers(&self) -> Vec<String> {
        let known = self.shared.known();
        let stay = known.members.into_iter().filter(|member| !member.draining);
        stay.map(|member| member.api_address).collect()
    }

    /// Returns the data that a server needs to become a member, beside the data in the store.
    pub fn welcome(&self) -> Result<ClusterWelcome, DirectoryError> {
        let authority = self.shared.directory.authority()?;
        let known = self.shared.known();
        Ok(ClusterWelcome {
            cluster: self.cluster().to_owned(),
            epoch: *self.shared.epoch.borrow(),
            authority: None,
            member_authority: AuthorityFiles {
                certificates: authority.certificates_pem(),
                key: authority.key_pem().to_owned(),
            },
            members: known.members,
            endpoints: self.shared.endpoints(),
        })
    }

    /// Returns the state of this server's datastore.
    pub fn datastore(&self) -> DatastoreState {
        self.shared.state.borrow().clone()
    }

    /// Resolves, with the reason, when this process has to exit and restart.
    pub async fn must_restart(&self) -> String {
        let mut restart_reason = self.shared.restart_reason.subscribe();
        loop {
            if let Some(why) = restart_reason.borrow_and_update().clone() {
                return why;
            }
            if restart_reason.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Starts following the store and taking part in elections.
    pub fn attach(&self, store: EtcdStore) {
        let shared = &self.shared;
        self.spawn(follow::run(Arc::clone(shared), store.clone()));
        self.spawn(actor::run(Arc::clone(shared), store.clone()));
        self.spawn(programs::run(Arc::clone(shared), store.clone()));
        *locked(&shared.store) = Some(store);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Says goodbye to the others, and ends the datastore.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// Reads the wall clock. No other place in a member does.
fn now() -> Timestamp {
    Timestamp::now()
}
