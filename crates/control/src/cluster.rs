//! The servers of a cluster, as operators and nodes ask about them.
//!
//! What is decided about members is in the store; what one server sees of the
//! others comes through [`ClusterLink`], because this crate knows nothing of
//! how members talk. On a server that is no member, everything here says so.

use std::sync::Arc;

use bunraku_model::{ContentId, NodeName};
use bunraku_store::{Compare, SharedStore, Transaction, TransactionOutcome};
use bunraku_wire::api::cluster::{
    AuthorityFiles, ClusterInvitation, ClusterInviteRequest, ClusterJoinRequest, ClusterSight,
    ClusterStatus, ClusterWelcome, DrainRequest, MemberRecord, ServerList, keys,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Clock;
use crate::document::{self, Decision};
use crate::{Certificates, ServiceError};

/// An invitation opens the authorities: it is short.
const LONGEST: u64 = 24 * 3600;

/// A member, as the services see it.
pub trait ClusterMember: Send + Sync {
    /// What it sees of the others.
    fn sight(&self) -> ClusterSight;
    /// Where nodes can go. Asked by every agent that connects: from memory.
    fn servers(&self) -> Vec<String>;
    /// What a newcomer needs, beside the authority that signs nodes.
    fn welcome(&self) -> Result<ClusterWelcome, Box<dyn std::error::Error + Send + Sync>>;
}

/// The member that this server is.
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

/// The handle on the cluster service.
#[derive(Clone)]
pub struct Cluster {
    store: SharedStore,
    clock: Clock,
    certificates: Certificates,
    link: Option<ClusterLink>,
}

fn no_cluster() -> ServiceError {
    ServiceError::conflict(
        "this server is not a member of a cluster",
        "make one with `bunraku cluster init`",
    )
}

/// One answer for "never existed", "used" and "expired": a stranger learns nothing.
fn not_invited() -> ServiceError {
    ServiceError::Forbidden {
        message: "the token is not valid: it was used, or has expired".to_owned(),
        hint: Some("an operator makes a new one with `bunraku cluster invite`".to_owned()),
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
    ) -> Self {
        Self {
            store,
            clock,
            certificates,
            link,
        }
    }

    fn link(&self) -> Result<&ClusterLink, ServiceError> {
        self.link.as_ref().ok_or_else(no_cluster)
    }

    /// What this server sees of the others; nothing when it is no member.
    pub fn sight(&self) -> Option<ClusterSight> {
        self.link.as_ref().map(|link| link.0.sight())
    }

    /// The cluster as this server sees it.
    pub async fn status(&self) -> Result<ClusterStatus, ServiceError> {
        let sight = self.link()?.0.sight();
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
        })
    }

    async fn members(&self) -> Result<Vec<MemberRecord>, ServiceError> {
        let entries = document::read_all(&*self.store, keys::MEMBERS).await?;
        entries.iter().map(document::decode).collect()
    }

    /// Where nodes can go. Empty when this server is no member: then it is the
    /// only one that it knows of.
    pub fn servers(&self) -> ServerList {
        let servers = self.link.as_ref().map(|link| link.0.servers());
        ServerList {
            servers: servers.unwrap_or_default(),
        }
    }

    /// A token that lets one server in. It is shown only in this reply.
    pub async fn invite(
        &self,
        request: &ClusterInviteRequest,
        by: &str,
    ) -> Result<ClusterInvitation, ServiceError> {
        self.link()?;
        if request.ttl_seconds == 0 || request.ttl_seconds > LONGEST {
            return Err(ServiceError::invalid(
                "an invitation lives between a second and a day",
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

    /// Lets a server in. The invitation is gone in the transaction that makes
    /// it a member; after a lost reply, a new invitation lets it in again.
    pub async fn join(&self, request: &ClusterJoinRequest) -> Result<ClusterWelcome, ServiceError> {
        let link = self.link()?;
        let key = keys::token(&hash(&request.token));
        let stored = document::read::<StoredInvitation>(&*self.store, &key).await?;
        let invited = stored.filter(|stored| stored.document.expires > self.clock.now());
        let invitation = invited.ok_or_else(not_invited)?;
        let member = keys::member(&request.name);
        let known = document::read::<MemberRecord>(&*self.store, &member).await?;
        if let Some(known) = &known
            && known.document.member_address != request.member_address
        {
            return Err(ServiceError::conflict(
                format!(
                    "`{}` is a member already, at {}",
                    request.name, known.document.member_address
                ),
                "give this server another name with `--name`",
            ));
        }
        let record = MemberRecord {
            name: request.name.clone(),
            member_address: request.member_address.clone(),
            api_address: request.api_address.clone(),
            client_url: request.client_url.clone(),
            peer_url: request.peer_url.clone(),
            eligible: request.eligible,
            draining: false,
            joined: self.clock.now(),
        };
        let transaction = Transaction::new()
            .when(Compare::Modified(key.clone(), invitation.entry.modified))
            .when_unchanged(&member, known.as_ref().map(|known| &known.entry))
            .delete(key)
            .put(member, document::encode(&record));
        if let TransactionOutcome::Refused(_) = self.store.commit(transaction).await? {
            return Err(not_invited());
        }
        tracing::warn!(member = %request.name, invited_by = invitation.document.made_by, "a server joined the cluster");
        let mut welcome = link.0.welcome().map_err(|error| {
            ServiceError::internal("the members' authority cannot be handed over", error)
        })?;
        welcome.authority = self.certificates.authority_files();
        welcome.members = self.members().await?;
        Ok(welcome)
    }

    /// Moves a server's role away, or stops doing so.
    pub async fn drain(&self, name: &NodeName, request: &DrainRequest) -> Result<(), ServiceError> {
        self.link()?;
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
}

impl Certificates {
    /// The authority that signs nodes, for a server that joins. A Puppet
    /// authority is not ours to give away.
    pub(crate) fn authority_files(&self) -> Option<AuthorityFiles> {
        let authority = self.authority();
        authority
            .puppet_directory()
            .is_none()
            .then(|| AuthorityFiles {
                certificates: authority.certificates_pem(),
                key: authority.key_pem().to_owned(),
            })
    }
}
