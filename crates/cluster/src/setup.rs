//! Makes a server a member: as the first one, or by joining.

use bunraku_model::NodeName;
use bunraku_wire::api::cluster::{ClusterWelcome, JoiningServer, MemberRecord};
use jiff::Timestamp;

use crate::datastore::DatastoreOrder;
use crate::directory::{Directory, DirectoryError, KnownPeers, LocalMember};

/// The addresses of a server that becomes a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    pub name: NodeName,
    /// A name or an address at which the other servers reach it.
    pub host: String,
    /// `HOST:PORT` for nodes and operators.
    pub api_address: String,
    pub member_port: u16,
    pub client_port: u16,
    pub peer_port: u16,
    /// The server may keep data.
    pub eligible: bool,
}

/// The reason why a server does not become a member.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(
        "{0} datastores tolerate no more failures than {fewer}: use 1, 3 or 5", fewer = .0 - 1
    )]
    Even(usize),
    #[error("there must be at least one datastore")]
    NoDatastore,
    #[error("more than 7 datastores only make writes slower: use 3 or 5")]
    TooMany,
    #[error("the first server stores the data: it must be eligible")]
    NotEligible,
    #[error("another server named `{0}` is already a member")]
    NameTaken(NodeName),
    #[error("cannot use the member's directory")]
    Directory(#[from] DirectoryError),
}

/// Checks that the count is one or an odd number: two stop when either fails, so
/// they are worse than one.
pub fn check_datastores(count: usize) -> Result<(), SetupError> {
    match count {
        0 => Err(SetupError::NoDatastore),
        8.. => Err(SetupError::TooMany),
        count if count.is_multiple_of(2) => Err(SetupError::Even(count)),
        _ => Ok(()),
    }
}

impl NewMember {
    fn host_port(&self, port: u16) -> String {
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }

    pub fn record(&self, now: Timestamp) -> MemberRecord {
        MemberRecord {
            name: self.name.clone(),
            member_address: self.host_port(self.member_port),
            api_address: self.api_address.clone(),
            client_url: format!("https://{}", self.host_port(self.client_port)),
            peer_url: format!("https://{}", self.host_port(self.peer_port)),
            eligible: self.eligible,
            draining: false,
            joined: now,
        }
    }

    /// Returns the request to an existing server.
    pub fn joining(&self, now: Timestamp) -> JoiningServer {
        let record = self.record(now);
        JoiningServer {
            name: record.name,
            member_address: record.member_address,
            api_address: record.api_address,
            client_url: record.client_url,
            peer_url: record.peer_url,
            eligible: record.eligible,
        }
    }
}

/// Sets up the first server: a cluster of one that others can join.
pub fn init(
    directory: &Directory,
    new: &NewMember,
    datastores: usize,
    now: Timestamp,
) -> Result<LocalMember, SetupError> {
    check_datastores(datastores)?;
    if !new.eligible {
        return Err(SetupError::NotEligible);
    }
    let me = LocalMember {
        cluster: uuid::Uuid::new_v4().to_string(),
        datastores: Some(datastores),
        record: new.record(now),
    };
    let epoch = 1;
    let generation = uuid::Uuid::new_v4().to_string();
    let order = DatastoreOrder::first(
        &me.cluster,
        epoch,
        &new.name,
        &me.record.peer_url,
        generation,
    );
    let known = KnownPeers {
        members: vec![me.record.clone()],
        endpoints: vec![me.record.client_url.clone()],
    };
    directory.create(&me, None, &known, Some(&order), epoch)?;
    Ok(me)
}

/// Sets up another server, with the data that an existing one returned.
pub fn join(
    directory: &Directory,
    new: &NewMember,
    welcome: &ClusterWelcome,
    now: Timestamp,
) -> Result<LocalMember, SetupError> {
    let record = new.record(now);
    let taken = welcome
        .members
        .iter()
        .any(|other| other.name == new.name && other.member_address != record.member_address);
    if taken {
        return Err(SetupError::NameTaken(new.name.clone()));
    }
    let me = LocalMember {
        cluster: welcome.cluster.clone(),
        datastores: None,
        record,
    };
    let known = KnownPeers {
        members: welcome.members.clone(),
        endpoints: welcome.endpoints.clone(),
    };
    let authority = Some(&welcome.member_authority);
    directory.create(&me, authority, &known, None, welcome.epoch)?;
    Ok(me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_datastores_are_refused_with_the_reason() {
        let refused = check_datastores(2).expect_err("two is refused");
        assert_eq!(
            refused.to_string(),
            "2 datastores tolerate no more failures than 1: use 1, 3 or 5"
        );
        for fine in [1, 3, 5, 7] {
            check_datastores(fine).expect("an odd number");
        }
    }
}
