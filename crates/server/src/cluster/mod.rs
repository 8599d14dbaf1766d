//! The servers of a cluster: the service behind the API for operators and nodes.
//!
//! Decisions about members are in the store. A server's view of the others comes through
//! [`ClusterLink`], because this crate does not know how members communicate. On a server
//! that is not a member, every call reports that.

mod join;
mod removal;

use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::{ContentId, NodeName};
use bunraku_store::{Follow, FollowEvent, SharedStore, Transaction};
use bunraku_wire::api::cluster::{
    ClusterInvitation, ClusterInviteRequest, ClusterStatus, ClusterView, ClusterWelcome,
    DrainRequest, ExpectServerRequest, MemberRecord, MemberState, ServerList, keys,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::space_status::space_status;
use bunraku_compile::CommandHub;
use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::{Certificates, ServiceAudit, ServiceError};

/// Longest lifetime of an invitation, in seconds. It is short because an invitation gives
/// access to the authorities.
const LONGEST: u64 = 24 * 3600;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Longest time to wait for the member's list of servers, and the polling interval. The
/// member follows the same changes as this service, and agents get the member's list.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(30);
const LOOK: std::time::Duration = std::time::Duration::from_millis(500);

/// A cluster member, as seen by the services.
#[async_trait]
pub trait ClusterMember: Send + Sync {
    /// Returns this member's view of the others.
    fn view(&self) -> ClusterView;
    /// Returns the servers that nodes can connect to. Answers from memory, because every
    /// connecting agent asks.
    fn servers(&self) -> Vec<String>;
    /// Returns the data that a joining server needs, besides the authority that signs nodes.
    fn welcome(&self) -> Result<ClusterWelcome, Failure>;
    /// Returns `true` if the member is configured to reach other machines over SSH.
    fn speaks_ssh(&self) -> bool {
        false
    }
    /// Reads the key in this directory over SSH, from a machine that SSH verifies.
    async fn read_key(&self, host: &str, place: &str) -> Result<String, Failure> {
        let _ = place;
        Err(format!("{host} cannot be reached over SSH from here").into())
    }
    /// Writes the welcome to this directory over SSH.
    async fn place_welcome(&self, host: &str, place: &str, text: &[u8]) -> Result<(), Failure> {
        let _ = (place, text);
        Err(format!("{host} cannot be reached over SSH from here").into())
    }
}

/// A link to this server's own cluster member.
#[derive(Clone)]
pub struct ClusterLink(pub Arc<dyn ClusterMember>);

impl std::fmt::Debug for ClusterLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterLink")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredInvitation {
    made_by: String,
    expires: Timestamp,
}

/// A server that may join over SSH.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ExpectedServer {
    host: String,
    expected_by: String,
    expires: Timestamp,
}

/// The handle on the cluster service.
#[derive(Clone)]
pub struct Cluster {
    store: SharedStore,
    clock: Clock,
    certificates: Certificates,
    link: Option<ClusterLink>,
    audit: ServiceAudit,
    /// Limits outgoing connections on behalf of strangers to one at a time.
    looking: Arc<tokio::sync::Semaphore>,
}

fn no_cluster() -> ServiceError {
    ServiceError::conflict(
        "this server is not a member of a cluster",
        "create one with `bunraku cluster init`",
    )
}

/// Returns the same error for "never existed", "used" and "expired", so that a stranger
/// learns nothing.
fn not_invited() -> ServiceError {
    ServiceError::Forbidden {
        message: "the token is not valid: it was used, or has expired".to_owned(),
        hint: Some("ask an operator for a new one (`bunraku cluster invite`)".to_owned()),
    }
}

fn hash(token: &str) -> String {
    ContentId::of(token.trim().as_bytes()).to_string()
}

impl Cluster {
    pub fn new(
        store: SharedStore,
        clock: Clock,
        certificates: Certificates,
        link: Option<ClusterLink>,
        audit: ServiceAudit,
    ) -> Self {
        Self {
            store,
            clock,
            certificates,
            link,
            audit,
            looking: Arc::new(tokio::sync::Semaphore::new(1)),
        }
    }

    /// Notifies agents when the list of servers changes, and when a server starts that may be
    /// their first choice. Runs until cancelled.
    pub(crate) async fn follow_members(&self, hub: CommandHub, shutdown: CancellationToken) {
        if self.link.is_none() {
            return;
        }
        let mut changes = Follow::new(self.store.clone(), keys::MEMBERS);
        let mut up = Follow::new(self.store.clone(), bunraku_control::keys::SERVERS);
        let mut known_servers = self.servers();
        loop {
            let followed = tokio::select! {
                () = shutdown.cancelled() => return,
                followed = changes.next() => followed,
                followed = up.next() => {
                    if let Ok(came @ FollowEvent::Changes(_)) = followed
                        && !came.into_puts().is_empty()
                    {
                        hub.notify_servers();
                    }
                    continue;
                }
            };
            match followed {
                Ok(FollowEvent::Snapshot { .. }) => continue,
                Ok(FollowEvent::Changes(_)) => {}
                Err(error) => {
                    tracing::warn!(error = %error, "cannot watch the servers of the cluster");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.news_since(&known_servers) => {}
            }
            let servers = self.servers();
            if servers != known_servers {
                known_servers = servers;
                hub.notify_servers();
            }
        }
    }

    /// Waits until the member's list differs from `known_servers`, or until the deadline.
    async fn news_since(&self, known_servers: &ServerList) {
        let deadline = tokio::time::Instant::now() + SETTLED;
        while self.servers() == *known_servers && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn link(&self) -> Result<&ClusterLink, ServiceError> {
        self.link.as_ref().ok_or_else(no_cluster)
    }

    /// Returns this server's view of the others, or `None` if it is not a member.
    pub fn view(&self) -> Option<ClusterView> {
        self.link.as_ref().map(|link| link.0.view())
    }

    /// Returns the state of the cluster as this server sees it.
    pub async fn status(&self) -> Result<ClusterStatus, ServiceError> {
        let sight = self.link()?.0.view();
        let settings = document::read(&*self.store, keys::SETTINGS).await?;
        let plan = document::read::<serde_json::Value>(&*self.store, keys::PLAN).await?;
        let datastores = document::read(&*self.store, keys::DATASTORES).await?;
        let events = document::read(&*self.store, keys::EVENTS).await?;
        let leader = self.store.get(keys::LEADER).await?;
        Ok(ClusterStatus {
            settings: settings.ok_or_else(no_cluster)?.document,
            sight,
            leader: leader
                .and_then(|entry| String::from_utf8(entry.value.to_vec()).ok())
                .and_then(|name| NodeName::new(name).ok()),
            members: self.members().await?,
            datastores: datastores.map_or_else(Vec::new, |stored| stored.document),
            change: plan
                .and_then(|stored| stored.document.get("current").cloned())
                .filter(|change| !change.is_null()),
            events: events.map_or_else(Vec::new, |stored| stored.document),
            without_majority_seconds: self.store.without_majority_for().map(|it| it.as_secs()),
            space: space_status(&self.store),
        })
    }

    async fn members(&self) -> Result<Vec<MemberRecord>, ServiceError> {
        let entries = document::read_all(&*self.store, keys::MEMBERS).await?;
        entries.iter().map(document::decode).collect()
    }

    /// Returns the servers that nodes can connect to. Empty if this server is not a member,
    /// because then it knows of no other server.
    pub fn servers(&self) -> ServerList {
        let servers = self.link.as_ref().map(|link| link.0.servers());
        ServerList {
            servers: servers.unwrap_or_default(),
        }
    }

    /// Creates a token that admits one server. Only this reply contains it.
    pub async fn invite(
        &self,
        request: &ClusterInviteRequest,
        by: &str,
    ) -> Result<ClusterInvitation, ServiceError> {
        self.link()?;
        if request.ttl_seconds == 0 || request.ttl_seconds > LONGEST {
            return Err(ServiceError::invalid(
                "an invitation must be valid for between one second and one day",
            ));
        }
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let seconds = i64::try_from(request.ttl_seconds).expect("at most a day");
        let stored = StoredInvitation {
            made_by: by.to_owned(),
            expires: self.clock.now() + SignedDuration::from_secs(seconds),
        };
        let key = keys::token(&hash(&token));
        let transaction = Transaction::new().put(key, document::encode(&stored));
        self.store.commit(transaction).await?;
        Ok(ClusterInvitation {
            token,
            expires: stored.expires,
            ca_fingerprint: self.certificates.ca_fingerprint(),
        })
    }

    /// Allows a server to join over SSH, once, at this address.
    pub async fn expect(
        &self,
        name: &NodeName,
        request: &ExpectServerRequest,
        by: &str,
    ) -> Result<(), ServiceError> {
        self.link()?;
        if request.ttl_seconds == 0 || request.ttl_seconds > LONGEST {
            return Err(ServiceError::invalid(
                "a server can be expected for between one second and one day",
            ));
        }
        if join::host_of(&format!("{}:1", request.host)) != Some(request.host.as_str()) {
            return Err(ServiceError::invalid(format!(
                "`{}` is not a host name or address",
                request.host
            )));
        }
        let seconds = i64::try_from(request.ttl_seconds).expect("at most a day");
        let expected = ExpectedServer {
            host: request.host.clone(),
            expected_by: by.to_owned(),
            expires: self.clock.now() + SignedDuration::from_secs(seconds),
        };
        let transaction = Transaction::new().put(keys::expected(name), document::encode(&expected));
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// No longer allows a server to join over SSH.
    pub async fn forget_expected(&self, name: &NodeName) -> Result<(), ServiceError> {
        self.link()?;
        let transaction = Transaction::new().delete(keys::expected(name));
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// Moves a server's role to another server, or cancels the move.
    pub async fn drain(&self, name: &NodeName, request: &DrainRequest) -> Result<(), ServiceError> {
        self.link()?;
        if request.draining {
            self.refuse_drain(name).await?;
        }
        let change = |known: Option<MemberRecord>| match known {
            None => Err(ServiceError::NotFound {
                what: format!("the server `{name}`"),
                hint: Some("list the servers with `bunraku cluster status`".to_owned()),
            }),
            Some(known) if known.draining == request.draining => Ok(Decision::Keep),
            Some(known) => Ok(Decision::Write(MemberRecord {
                draining: request.draining,
                ..known
            })),
        };
        document::update(&*self.store, &keys::member(name), change).await?;
        Ok(())
    }

    /// Refuses to drain a server whose datastore no other server can take.
    async fn refuse_drain(&self, name: &NodeName) -> Result<(), ServiceError> {
        let status = self.status().await?;
        let stores_data = |server: &NodeName| {
            let mut datastores = status.datastores.iter();
            datastores.any(|datastore| datastore.name.as_ref() == Some(server))
        };
        let is_alive = |server: &NodeName| {
            let seen = status.sight.members.iter().find(|it| it.name == *server);
            *server == status.sight.seen_by
                || seen.is_some_and(|seen| seen.state == MemberState::Alive)
        };
        let can_take_over = |member: &MemberRecord| {
            member.name != *name
                && member.eligible
                && !member.draining
                && is_alive(&member.name)
                && !stores_data(&member.name)
        };
        if !stores_data(name) || status.members.iter().any(can_take_over) {
            return Ok(());
        }
        Err(ServiceError::conflict(
            format!("no other server can take over the datastore of `{name}`"),
            format!(
                "add a server first; for short maintenance, stop `{name}` without draining it: {} datastores tolerate the loss of {}",
                status.datastores.len(),
                status.datastores.len().saturating_sub(1) / 2
            ),
        ))
    }
}
