//! Snapshots of all data, and restoring them.
//!
//! A snapshot counts only after it was read back: `etcdctl` checks its hash and
//! creates a data directory from it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_files::{FileError, StagedFile};
use bunraku_process::{OutputLimits, Program as Executable};
use jiff::Timestamp;

use super::admin::{Admin, AdminError};
use super::data::{self, DataError};
use super::process::Program;
use crate::directory::Directory;
use crate::order::DatastoreOrder;

/// The time limit for `etcdctl` to read a snapshot.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The reason why there is no snapshot, or no usable one.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("the datastore did not return a snapshot")]
    Admin(#[from] AdminError),
    #[error("the snapshot was incomplete")]
    CutOff(#[source] etcd_client::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot run {}", .program.display())]
    Program {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read back the snapshot: {0}")]
    Unusable(String),
    #[error("not enough space for the data")]
    Data(#[from] DataError),
}

/// Saves a snapshot of one datastore. Works without a majority.
pub async fn save(admin: &Admin, endpoint: &str, path: &Path) -> Result<(), SnapshotError> {
    let mut client = admin.client(endpoint).await?;
    let mut stream = client.snapshot().await.map_err(SnapshotError::CutOff)?;
    let mut file = StagedFile::create(path).map_err(FileError::when("create", path))?;
    while let Some(piece) = stream.message().await.map_err(SnapshotError::CutOff)? {
        file.write_all(piece.blob())
            .map_err(FileError::when("write", path))?;
    }
    file.publish().map_err(FileError::when("write", path))?;
    Ok(())
}

async fn etcdctl(program: &Program, arguments: &[String]) -> Result<(), SnapshotError> {
    let output = Executable::new(&program.etcdctl)
        .env_clear()
        .env("ETCDCTL_API", "3")
        .args(arguments)
        .output(OutputLimits::with_timeout(PATIENCE))
        .await
        .map_err(|error| SnapshotError::Program {
            program: program.etcdctl.clone(),
            source: error.into_io(),
        })?;
    if output.status.success() {
        Ok(())
    } else {
        Err(SnapshotError::Unusable(
            output.stderr_text().trim().to_owned(),
        ))
    }
}

async fn restore_into(
    program: &Program,
    snapshot: &Path,
    order: &DatastoreOrder,
    data: &Path,
) -> Result<(), SnapshotError> {
    let arguments = [
        "snapshot".to_owned(),
        "restore".to_owned(),
        snapshot.display().to_string(),
        format!("--name={}", program.name),
        format!("--data-dir={}", data.display()),
        format!("--initial-cluster={}", order.initial_cluster_flag()),
        format!("--initial-cluster-token={}", order.token),
        format!("--initial-advertise-peer-urls={}", program.peer_url),
    ];
    etcdctl(program, &arguments).await
}

/// Creates the data of an order from a snapshot. etcd treats it as a new cluster:
/// datastores of the old cluster cannot join it.
pub async fn restore(
    program: &Program,
    directory: &Directory,
    snapshot: &Path,
    order: &DatastoreOrder,
) -> Result<(), SnapshotError> {
    let data = data::open(directory, order)?;
    restore_into(program, snapshot, order, &data).await
}

/// Verifies a snapshot by reading it back into a temporary directory.
pub async fn verify(program: &Program, snapshot: &Path) -> Result<(), SnapshotError> {
    let scratch = snapshot.with_extension("verify");
    let _ = std::fs::remove_dir_all(&scratch);
    let generation = "verify".to_owned();
    let order = DatastoreOrder::first("verify", 0, &program.name, &program.peer_url, generation);
    let restored = restore_into(program, snapshot, &order, &scratch).await;
    let _ = std::fs::remove_dir_all(&scratch);
    restored
}

/// Scheduled snapshots.
pub struct Snapshots {
    pub program: Program,
    pub directory: Directory,
    pub keep: usize,
}

impl Snapshots {
    /// Takes and verifies another snapshot, then deletes the oldest ones beyond the limit.
    pub async fn take(
        &self,
        admin: &Admin,
        endpoint: &str,
        now: Timestamp,
    ) -> Result<PathBuf, SnapshotError> {
        let place = self.directory.snapshots();
        bunraku_files::create_private_directory(&place)
            .map_err(FileError::when("create", &place))?;
        let path = place.join(format!("{}.db", now.strftime("%Y%m%dT%H%M%SZ")));
        save(admin, endpoint, &path).await?;
        if let Err(error) = verify(&self.program, &path).await {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.forget_old();
        Ok(path)
    }

    /// Returns the time of the newest snapshot.
    pub fn newest(&self) -> Option<std::time::SystemTime> {
        let newest = self.all().pop()?;
        std::fs::metadata(newest)
            .and_then(|file| file.modified())
            .ok()
    }

    fn all(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.directory.snapshots()) else {
            return Vec::new();
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut copies: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|kind| kind == "db"))
            .collect();
        copies.sort();
        copies
    }

    fn forget_old(&self) {
        let copies = self.all();
        let extra = copies.len().saturating_sub(self.keep);
        for old in &copies[..extra] {
            let _ = std::fs::remove_file(old);
        }
    }
}
