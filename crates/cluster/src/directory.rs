//! The data that a member must know before the store answers: `<data_dir>/cluster/`.
//!
//! Every file is complete or absent (see the `files` crate). Not here: anything
//! that the store knows better once it answers. The only part of that which is kept
//! ([`KnownPeers`]) is where to find the store.

use std::path::{Path, PathBuf};

use bunraku_files::FileError;
use bunraku_wire::Authority;
use bunraku_wire::api::cluster::{AuthorityFiles, MemberRecord, RemovedMember};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::order::DatastoreOrder;

/// The reason why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is corrupt", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("this server is already a member of a cluster ({})", .0.display())]
    MemberAlready(PathBuf),
    #[error("cannot use the members' CA")]
    Authority(#[source] bunraku_wire::authority::DirectoryError),
}

/// The identity of this member. Written when the cluster is created or joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalMember {
    pub cluster: String,
    /// The wanted number of datastores; only set on the first server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastores: Option<usize>,
    pub record: MemberRecord,
}

/// The addresses of the other members when this member last looked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KnownPeers {
    pub members: Vec<MemberRecord>,
    pub endpoints: Vec<String>,
}

/// Counters that never decrease: each start is a new life, each recovery a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub life: u64,
    /// Data of an earlier epoch is never used again.
    pub epoch: u64,
}

/// The member's directory on disk.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn of(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join("cluster"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of this member, or `None` if this server is not a member.
    pub fn local_member(&self) -> Result<Option<LocalMember>, DirectoryError> {
        self.read("member.json")
    }

    pub fn known_peers(&self) -> Result<KnownPeers, DirectoryError> {
        Ok(self.read("known.json")?.unwrap_or_default())
    }

    pub fn write_known_peers(&self, known: &KnownPeers) -> Result<(), DirectoryError> {
        self.write("known.json", known)
    }

    pub fn counters(&self) -> Result<Counters, DirectoryError> {
        Ok(self.read("counters.json")?.unwrap_or_default())
    }

    pub fn write_counters(&self, counters: &Counters) -> Result<(), DirectoryError> {
        self.write("counters.json", counters)
    }

    /// Returns the datastore that this member was last ordered to run.
    pub fn order(&self) -> Result<Option<DatastoreOrder>, DirectoryError> {
        Ok(self.read::<Option<DatastoreOrder>>("order.json")?.flatten())
    }

    pub fn write_order(&self, order: Option<&DatastoreOrder>) -> Result<(), DirectoryError> {
        self.write("order.json", &order)
    }

    /// Returns the note that this server was removed from its cluster, if it was.
    pub fn removed(&self) -> Result<Option<RemovedMember>, DirectoryError> {
        self.read("removed.json")
    }

    pub fn write_removed(&self, removed: &RemovedMember) -> Result<(), DirectoryError> {
        self.write("removed.json", removed)
    }

    /// Begins a new life of this member. Its number is larger than any before, even
    /// if the directory was lost and only the clock remains.
    pub fn begin_life(&self, now: Timestamp) -> Result<Counters, DirectoryError> {
        let mut counters = self.counters()?;
        let clock = u64::try_from(now.as_millisecond()).unwrap_or_default();
        counters.life = clock.max(counters.life.saturating_add(1));
        self.write_counters(&counters)?;
        Ok(counters)
    }

    /// Makes this server a member. The name is written last: without it, the server
    /// is not a member.
    pub fn create(
        &self,
        me: &LocalMember,
        authority: Option<&AuthorityFiles>,
        known: &KnownPeers,
        order: Option<&DatastoreOrder>,
        epoch: u64,
    ) -> Result<(), DirectoryError> {
        if self.local_member()?.is_some() {
            return Err(DirectoryError::MemberAlready(self.path.clone()));
        }
        if let Some(files) = authority {
            place_authority(&self.authority_path(), files)?;
        }
        self.authority()?;
        self.write_known_peers(known)?;
        self.write_order(order)?;
        self.write_counters(&Counters { life: 0, epoch })?;
        self.write("member.json", me)
    }

    fn authority_path(&self) -> PathBuf {
        self.path.join("ca")
    }

    /// Returns the members' own authority. Creates it if there is none.
    pub fn authority(&self) -> Result<Authority, DirectoryError> {
        Authority::load_or_create(&self.authority_path(), Timestamp::now())
            .map_err(DirectoryError::Authority)
    }

    pub fn credentials(&self) -> bunraku_wire::Credentials {
        bunraku_wire::Credentials::new(self.path.join("tls"))
    }

    pub fn snapshots(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    pub fn datastore_log(&self) -> PathBuf {
        self.path.join("etcd.log")
    }

    pub fn datastore_pid(&self) -> PathBuf {
        self.path.join("etcd.pid")
    }

    /// The parent of this member's data directories, one for each datastore.
    pub fn datastores(&self) -> PathBuf {
        self.path.join("etcd")
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, DirectoryError> {
        let path = self.path.join(name);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::when("read", &path)(error).into()),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| DirectoryError::Damaged { path, source })
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), DirectoryError> {
        let path = self.path.join(name);
        bunraku_files::create_private_directory(&self.path)
            .map_err(FileError::when("create", &self.path))?;
        let text = serde_json::to_vec_pretty(value).expect("plain data that JSON can hold");
        bunraku_files::replace(&path, &text, 0o600).map_err(FileError::when("write", &path))?;
        Ok(())
    }
}

/// Writes an authority to where `Authority::load_or_create` finds it. An existing
/// authority stays if it is the same.
pub fn place_authority(directory: &Path, files: &AuthorityFiles) -> Result<(), DirectoryError> {
    bunraku_files::create_private_directory(directory)
        .map_err(FileError::when("create", directory))?;
    let parts = [
        ("ca.key", &files.key, 0o600),
        ("ca.pem", &files.certificates, 0o644),
    ];
    for (name, text, mode) in parts {
        let path = directory.join(name);
        match bunraku_files::create(&path, text.as_bytes(), mode) {
            Ok(()) => {}
            Err(error)
                if error.kind() == std::io::ErrorKind::AlreadyExists
                    && std::fs::read(&path).is_ok_and(|known| known == text.as_bytes()) => {}
            Err(source) => return Err(FileError::when("create", &path)(source).into()),
        }
    }
    Ok(())
}
