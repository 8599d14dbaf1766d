//! Operations for an operator on a member's machine that work without the store.
//!
//! The operator acts as the member whose directory it is given, over the members'
//! own TLS: anyone who can read that directory is root on a server.

use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::ReloadableClientTls;
use bunraku_wire::api::cluster::{ClusterView, MemberRecord};
use futures::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::directory::{Directory, DirectoryError, LocalMember};
use crate::identity::{IdentityError, MemberTls};
use crate::recover::{DatastoreAnswer, RecoveryDecision};
use crate::transport::{Dialer, PeerAnswer, PeerQuestion, RequestError, ask};

const PATIENCE: Duration = Duration::from_secs(8);
/// The time limit for a recovery. Copying all data takes time.
const RECOVERY: Duration = Duration::from_secs(600);

/// The reason why the members could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("this server is not a member of a cluster")]
    NotAMember,
    #[error("cannot read this member's state")]
    Directory(#[from] DirectoryError),
    #[error("this member has no certificate")]
    Identity(#[from] IdentityError),
    #[error("cannot set up TLS")]
    Tls(#[from] bunraku_wire::tls::TlsError),
    #[error(transparent)]
    Ask(#[from] RequestError),
}

/// Acts as the member that owns the directory.
pub struct Operator {
    dialer: Dialer,
    me: LocalMember,
    members: Vec<MemberRecord>,
}

impl Operator {
    pub fn of(directory: &Directory) -> Result<Self, OperatorError> {
        let me = directory.local_member()?.ok_or(OperatorError::NotAMember)?;
        let host = me.record.member_address.rsplit_once(':');
        let host = host.map_or("", |(host, _)| host);
        let tls = MemberTls::ensure(directory, &me.record.name, host, Timestamp::now())?;
        let epoch = directory.counters()?.epoch;
        let known = directory.known_peers()?;
        Ok(Self {
            dialer: Dialer {
                tls: ReloadableClientTls::new(&tls.client())?,
                cluster: me.cluster.clone(),
                epoch: watch::channel(epoch).1,
            },
            members: known.members,
            me,
        })
    }

    pub fn members(&self) -> &[MemberRecord] {
        &self.members
    }

    async fn ask(
        &self,
        member: &MemberRecord,
        question: &PeerQuestion,
        patience: Duration,
    ) -> Result<PeerAnswer, RequestError> {
        let address = &member.member_address;
        ask(&self.dialer, &member.name, address, question, patience).await
    }

    /// Returns the view of the member on this machine.
    pub async fn view(&self) -> Result<Option<ClusterView>, OperatorError> {
        let answer = self.ask(&self.me.record, &PeerQuestion::Sight, PATIENCE);
        Ok(match answer.await? {
            PeerAnswer::Sight(sight) => Some(sight),
            _ => None,
        })
    }

    /// Asks every member about its datastore.
    pub async fn ask_all(&self) -> Vec<DatastoreAnswer> {
        let asked = self.members.iter().map(|member| async move {
            let answer = self.ask(member, &PeerQuestion::Datastore, PATIENCE).await;
            DatastoreAnswer {
                name: member.name.clone(),
                peer_url: member.peer_url.clone(),
                report: match answer {
                    Ok(PeerAnswer::Datastore(report)) => Some(report),
                    _ => None,
                },
            }
        });
        join_all(asked).await
    }

    /// Recovers as decided: first creates the new cluster, then fences the others.
    /// Returns the members that could not be fenced; they are fenced when they are
    /// heard from again.
    pub async fn recover(
        &self,
        decision: &RecoveryDecision,
    ) -> Result<Vec<NodeName>, OperatorError> {
        let epoch = decision.epoch;
        let by_name = |name: &NodeName| self.members.iter().find(|member| member.name == *name);
        let mut endpoints = Vec::new();
        if let Some(chosen) = by_name(&decision.from) {
            let question = PeerQuestion::Recover { epoch };
            let answer = self.ask(chosen, &question, RECOVERY).await?;
            if let PeerAnswer::Done { endpoint } = answer {
                endpoints.extend(endpoint);
            }
        }
        let mut unfenced = decision.lost.clone();
        for (name, _) in &decision.fenced {
            let Some(member) = by_name(name) else {
                continue;
            };
            let endpoints = endpoints.clone();
            let fence = PeerQuestion::Fence { epoch, endpoints };
            if self.ask(member, &fence, PATIENCE).await.is_err() {
                unfenced.push(name.clone());
            }
        }
        Ok(unfenced)
    }
}
