//! Recovery after a majority of the datastores is permanently lost.
//!
//! The data of one datastore becomes a new cluster of one, in a new epoch. To etcd
//! it is another cluster (a new token), and to members another epoch: the data of
//! the other datastores can never join it.
//!
//! Rules: [`decide`] refuses while a majority is alive, or may be alive out of
//! reach, unless the operator names the servers that are permanently lost. The most
//! advanced datastore that answers becomes the source.

use std::path::Path;

use bunraku_files::FileError;
use bunraku_model::NodeName;

use crate::datastore::{self, Admin, DatastoreOrder, Program, SnapshotError};
use crate::directory::{Directory, DirectoryError, LocalMember};
use crate::transport::{DataProgress, DatastoreReport};

/// The reason why nothing was recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("cannot restore the data")]
    Snapshot(#[from] SnapshotError),
    #[error("cannot write this member's state")]
    Directory(#[from] DirectoryError),
}

/// The result of asking a server about its datastore.
#[derive(Clone, Debug)]
pub struct DatastoreAnswer {
    pub name: NodeName,
    pub peer_url: String,
    /// `None` if the server does not answer.
    pub report: Option<DatastoreReport>,
}

/// The reason why recovery is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryRefusal {
    #[error("a majority of the datastores is running: there is nothing to recover")]
    MajorityLives,
    #[error("no datastore answers: only a snapshot can be recovered")]
    NobodyLeft,
    #[error("{} may still be running but unreachable from this server: {}", if .0.len() == 1 { "one datastore" } else { "datastores" }, .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    MayLive(Vec<NodeName>),
}

/// The consequences of recovering now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryDecision {
    /// The most advanced of those that answer.
    pub from: NodeName,
    pub progress: DataProgress,
    pub epoch: u64,
    /// The others that answer, and their progress. Their data is set aside.
    pub fenced: Vec<(NodeName, Option<DataProgress>)>,
    /// The servers that do not answer. Data that only they had is lost.
    pub lost: Vec<NodeName>,
}

/// Decides whether to recover, and from which server. `gone` are the servers that
/// the operator declares permanently lost.
pub fn decide(
    heard: &[DatastoreAnswer],
    gone: &[NodeName],
) -> Result<RecoveryDecision, RecoveryRefusal> {
    let reports = || heard.iter().filter_map(|one| one.report.as_ref());
    let best = reports()
        .filter(|report| report.ordered)
        .filter_map(|report| Some((report.epoch, report.progress?, report)))
        .max_by_key(|(epoch, progress, _)| (*epoch, *progress))
        .ok_or(RecoveryRefusal::NobodyLeft)?;
    let (epoch, progress, chosen) = best;
    let is_voter = |one: &&DatastoreAnswer| chosen.voters.contains(&one.peer_url);
    let answering = heard.iter().filter(is_voter).filter(|one| {
        let report = one.report.as_ref();
        report.is_some_and(|report| report.epoch == epoch && report.progress.is_some())
    });
    let answering = answering.count();
    let majority = chosen.voters.len() / 2 + 1;
    if progress.has_leader || answering >= majority {
        return Err(RecoveryRefusal::MajorityLives);
    }
    let silent: Vec<NodeName> = heard
        .iter()
        .filter(is_voter)
        .filter(|one| one.report.is_none())
        .map(|one| one.name.clone())
        .collect();
    let unnamed: Vec<NodeName> = silent
        .iter()
        .filter(|name| !gone.contains(name))
        .cloned()
        .collect();
    if !unnamed.is_empty() {
        return Err(RecoveryRefusal::MayLive(unnamed));
    }
    Ok(RecoveryDecision {
        from: chosen.name.clone(),
        progress,
        epoch: reports().map(|report| report.epoch).max().unwrap_or(epoch) + 1,
        fenced: reports()
            .filter(|report| report.name != chosen.name)
            .map(|report| (report.name.clone(), report.progress))
            .collect(),
        lost: silent,
    })
}

/// Creates a new epoch from this server's own data. It takes effect when this process restarts.
pub async fn from_own_data(
    directory: &Directory,
    me: &LocalMember,
    program: &Program,
    (admin, own): (&Admin, &str),
    epoch: u64,
) -> Result<(), RecoverError> {
    let place = directory.snapshots();
    bunraku_files::create_private_directory(&place)
        .map_err(|error| DirectoryError::from(FileError::when("create", &place)(error)))?;
    let snapshot = place.join(format!("before-epoch-{epoch}.db"));
    datastore::save(admin, own, &snapshot).await?;
    from_snapshot(directory, me, program, &snapshot, epoch).await
}

/// Creates a new epoch from a snapshot, for the next start of this server.
pub async fn from_snapshot(
    directory: &Directory,
    me: &LocalMember,
    program: &Program,
    snapshot: &Path,
    epoch: u64,
) -> Result<(), RecoverError> {
    let generation = uuid::Uuid::new_v4().to_string();
    let name = &me.record.name;
    let order = DatastoreOrder::first(&me.cluster, epoch, name, &me.record.peer_url, generation);
    datastore::restore(program, directory, snapshot, &order).await?;
    let mut known = directory.known_peers()?;
    known.endpoints = vec![me.record.client_url.clone()];
    directory.write_known_peers(&known)?;
    let mut counters = directory.counters()?;
    counters.epoch = epoch;
    directory.write_counters(&counters)?;
    // Last: from here on, this server runs the new data.
    directory.write_order(Some(&order))?;
    Ok(())
}
