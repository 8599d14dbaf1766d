//! etcd's member list, and the status of each member.

use std::time::Duration;

use bunraku_store::etcd::EtcdTls;
use etcd_client::{Certificate, Client, ConnectOptions, Identity, MemberAddOptions, TlsOptions};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::transport::DataProgress;

const PATIENCE: Duration = Duration::from_secs(3);

/// The reason why etcd's member list was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("no datastore answers")]
    Unavailable,
    #[error("etcd refused")]
    Refused(#[source] etcd_client::Error),
    #[error("etcd did not answer in time")]
    TimedOut,
}

/// One member on etcd's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMember {
    pub id: u64,
    /// Empty until the member starts for the first time.
    pub name: String,
    pub peer_url: String,
    pub client_url: Option<String>,
    pub learner: bool,
}

/// The status that a datastore reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatastoreStatus {
    pub leads: bool,
    pub has_leader: bool,
    pub learner: bool,
}

impl DatastoreStatus {
    /// Returns true if the report counts: the datastore has a leader and a vote.
    pub fn is_led(&self) -> bool {
        self.has_leader && !self.learner
    }
}

/// A client of etcd's administration API.
#[derive(Clone)]
pub struct Admin {
    tls: EtcdTls,
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, AdminError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome.map_err(AdminError::Refused),
        Err(_) => Err(AdminError::TimedOut),
    }
}

fn listed(members: &[etcd_client::Member]) -> Vec<ListedMember> {
    let listed = members.iter().map(|member| ListedMember {
        id: member.id(),
        name: member.name().to_owned(),
        peer_url: member.peer_urls().first().cloned().unwrap_or_default(),
        client_url: member.client_urls().first().cloned(),
        learner: member.is_learner(),
    });
    listed.collect()
}

impl Admin {
    pub fn new(tls: EtcdTls) -> Self {
        Self { tls }
    }

    pub(super) async fn client(&self, endpoint: &str) -> Result<Client, AdminError> {
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.tls.ca_pem));
        if let Some(identity) = &self.tls.identity {
            tls = tls.identity(Identity::from_pem(&identity.cert_pem, &identity.key_pem));
        }
        let options = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_tls(tls);
        in_time(Client::connect([endpoint], Some(options))).await
    }

    /// Returns the progress of one datastore. Works without a majority.
    pub async fn progress(&self, endpoint: &str) -> Result<DataProgress, AdminError> {
        let mut client = self.client(endpoint).await?;
        let status = in_time(client.status()).await?;
        Ok(DataProgress {
            raft_term: status.raft_term(),
            raft_index: status.raft_index(),
            revision: status
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision),
            has_leader: status.leader() != 0,
        })
    }

    /// Returns the status of one datastore.
    pub async fn status(&self, endpoint: &str) -> Result<DatastoreStatus, AdminError> {
        let mut client = self.client(endpoint).await?;
        let status = in_time(client.status()).await?;
        let own = status.header().map(etcd_client::ResponseHeader::member_id);
        Ok(DatastoreStatus {
            leads: own == Some(status.leader()),
            has_leader: status.leader() != 0,
            learner: status.is_learner(),
        })
    }

    /// Returns the member list as one datastore knows it.
    pub async fn list_at(&self, endpoint: &str) -> Result<Vec<ListedMember>, AdminError> {
        let mut client = self.client(endpoint).await?;
        let response = in_time(client.member_list()).await?;
        Ok(listed(response.members()))
    }

    /// Returns the member list from the leading datastore, or one that has a leader.
    pub async fn list(&self, endpoints: &[String]) -> Result<Vec<ListedMember>, AdminError> {
        let client = self.leader_endpoint(endpoints).await?;
        self.list_at(&client).await
    }

    /// Returns the endpoint of the leading datastore, or of one that has a leader.
    /// A datastore that does not answer does not delay finding the leader.
    async fn leader_endpoint(&self, endpoints: &[String]) -> Result<String, AdminError> {
        let mut asked: FuturesUnordered<_> = endpoints
            .iter()
            .map(|endpoint| async move { (endpoint, self.status(endpoint).await) })
            .collect();
        let mut hears = None;
        while let Some((endpoint, answer)) = asked.next().await {
            match answer {
                Ok(standing) if standing.is_led() && standing.leads => return Ok(endpoint.clone()),
                Ok(standing) if standing.is_led() => hears = Some(endpoint.clone()),
                _ => {}
            }
        }
        hears.ok_or(AdminError::Unavailable)
    }

    pub async fn add_learner(
        &self,
        endpoints: &[String],
        peer_url: &str,
    ) -> Result<(), AdminError> {
        let mut client = self.client(&self.leader_endpoint(endpoints).await?).await?;
        let options = MemberAddOptions::new().with_is_learner();
        in_time(client.member_add([peer_url], Some(options)))
            .await
            .map(drop)
    }

    pub async fn remove(&self, endpoints: &[String], id: u64) -> Result<(), AdminError> {
        let mut client = self.client(&self.leader_endpoint(endpoints).await?).await?;
        in_time(client.member_remove(id)).await.map(drop)
    }

    pub async fn promote(&self, endpoints: &[String], id: u64) -> Result<(), AdminError> {
        let mut client = self.client(&self.leader_endpoint(endpoints).await?).await?;
        in_time(client.member_promote(id)).await.map(drop)
    }
}
