//! Starts a member from its directory on disk.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bunraku_store::Store;
use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_wire::api::cluster::keys;
use bunraku_wire::{ReloadableClientTls, ReloadableServerTls};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{
    Datastores, Member, MemberError, MemberOptions, ROOT, Shared, answers, gossip, now, renewal,
};
use crate::datastore::{DatastoreOrder, DatastoreState, Inspector, Program, Supervisor};
use crate::directory::{Directory, KnownPeers, LocalMember};
use crate::identity::MemberTls;
use crate::membership::MemberIdentity;
use crate::transport::Listener;

/// The number of unread messages to keep. More are dropped.
const INBOX: usize = 1024;
/// The time for which a returning server asks whether its data is still wanted.
const ASK: Duration = Duration::from_secs(4);

fn host_of(address: &str) -> Result<(&str, u16), MemberError> {
    let wrong = || MemberError::Address(address.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host, port.parse().map_err(|_| wrong())?))
}

impl MemberOptions {
    /// Returns how etcd runs on this server.
    pub fn program(&self, me: &LocalMember) -> Program {
        Program {
            etcd: self.etcd.clone(),
            etcdctl: self.etcdctl.clone(),
            name: me.record.name.clone(),
            client_url: me.record.client_url.clone(),
            peer_url: me.record.peer_url.clone(),
            listen: self.listen,
            heartbeat: self.etcd_heartbeat,
            election: self.etcd_election,
            flags: self.etcd_flags.clone(),
        }
    }
}

impl Member {
    /// Starts everything that does not need the store.
    pub async fn start(options: MemberOptions) -> Result<Self, MemberError> {
        let directory = Directory::of(&options.data_dir);
        let me = directory.local_member()?.ok_or(MemberError::NotAMember)?;
        if let Some(removed) = directory.removed()? {
            let (at, by) = (removed.at, removed.by);
            return Err(MemberError::Removed { at, by });
        }
        let counters = directory.begin_life(now())?;
        let (host, port) = host_of(&me.record.member_address)?;
        let lifetime = options.certificate_lifetime;
        let tls = MemberTls::ensure_for(&directory, &me.record.name, host, lifetime, now())?;
        let known = directory.known_peers()?;
        let order = wanted_order(&directory, &me, &known, &tls).await?;
        let (orders, ordered) = watch::channel(order);
        let (state_sender, state) = watch::channel(DatastoreState::None);
        let (sights_sender, sights) = watch::channel(gossip::PeerStates::new());
        let shared = Arc::new(Shared {
            program: options.program(&me),
            inspector: Inspector::new(options.etcd.clone()),
            server_tls: ReloadableServerTls::new(&tls.server())?,
            client_tls: ReloadableClientTls::new(&tls.client())?,
            tls: Mutex::new(tls),
            known: Mutex::new(known),
            orders,
            state,
            epoch: watch::channel(counters.epoch).0,
            sights,
            waiting: Mutex::default(),
            datastores: watch::channel(Datastores::default()).0,
            store: Mutex::default(),
            view: Mutex::default(),
            restart_reason: watch::channel(None).0,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            me,
            directory,
            options,
        });
        let supervisor = Supervisor {
            program: shared.program.clone(),
            inspector: shared.inspector.clone(),
            directory: shared.directory.clone(),
            orders: ordered,
            state: state_sender,
        };
        listen(&shared, port, counters.life, sights_sender).await?;
        shared.tasks.spawn(supervisor.run(shared.stop.clone()));
        let member = Self { shared };
        member.spawn(renewal::run(Arc::clone(&member.shared)));
        Ok(member)
    }
}

async fn listen(
    shared: &Arc<Shared>,
    port: u16,
    life: u64,
    sights: watch::Sender<gossip::PeerStates>,
) -> Result<(), MemberError> {
    let (incoming, inbox) = mpsc::channel(INBOX);
    let (epochs, newer) = mpsc::channel(16);
    let listener = Listener::bind(
        SocketAddr::new(shared.options.listen, port),
        shared.server_tls.clone(),
        shared.me.cluster.clone(),
        incoming,
        epochs,
        answers::answerer(shared),
    )
    .await?;
    shared.tasks.spawn(listener.run(shared.stop.clone()));
    let identity = MemberIdentity {
        name: shared.name().clone(),
        address: shared.me.record.member_address.clone(),
        life,
        leaving: false,
    };
    let driver = gossip::Driver::new(Arc::clone(shared), identity, inbox, sights);
    shared.tasks.spawn(driver.run());
    let watching = Arc::clone(shared);
    shared.tasks.spawn(async move {
        let stop = watching.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = answers::heed_epochs(&watching, newer) => {}
        }
    });
    Ok(())
}

/// Returns the order that this server should run now: its last order, unless the
/// others decided otherwise meanwhile. If nobody answers, all servers may be
/// starting at once, and the last order holds: peers reject a datastore that was
/// removed from the list.
async fn wanted_order(
    directory: &Directory,
    me: &LocalMember,
    known: &KnownPeers,
    tls: &MemberTls,
) -> Result<Option<DatastoreOrder>, MemberError> {
    let Some(local) = directory.order()? else {
        return Ok(None);
    };
    let others: Vec<String> = known
        .endpoints
        .iter()
        .filter(|endpoint| **endpoint != me.record.client_url)
        .cloned()
        .collect();
    if others.is_empty() {
        return Ok(Some(local));
    }
    let mut options = EtcdOptions::new(others, ROOT);
    options.tls = Some(tls.etcd().clone());
    options.request_timeout = Duration::from_secs(1);
    options.retry_for = Duration::from_secs(2);
    let asking = async {
        let store = EtcdStore::connect(options).await.ok()?;
        store.get(&keys::order(&me.record.name)).await.ok()
    };
    let Ok(Some(answer)) = tokio::time::timeout(ASK, asking).await else {
        return Ok(Some(local));
    };
    let current =
        answer.and_then(|entry| serde_json::from_slice::<DatastoreOrder>(&entry.value).ok());
    let still = current.is_some_and(|current| current.generation == local.generation);
    if still {
        return Ok(Some(local));
    }
    tracing::warn!(
        "the datastore of this server was replaced in its absence; setting aside its data"
    );
    directory.write_order(None)?;
    Ok(None)
}
