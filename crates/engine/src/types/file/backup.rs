//! Backups of replaced files, and restoring them.
//!
//! Contents are stored under their SHA-256, so the same content is kept once. An index
//! with one JSON line for each replacement records the path of each content. Only the
//! owner can read both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_files::StagedFile;
use serde::{Deserialize, Serialize};

use super::content::checksum;
use super::land::{self, Finish};
use super::observed::Attributes;
use super::place::Place;
use crate::{StepError, WriteAccess};

/// One file that was replaced or removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Backup {
    /// The time, in seconds since 1970.
    pub at: i64,
    /// The path. Bytes that are not UTF-8 are replaced, and `path_bytes` has them.
    pub path: String,
    /// The path in hexadecimal, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    pub sha256: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The reason why backups cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the backups in {}", .path.display())]
pub struct BackupError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Backup {
    /// Returns the original path.
    pub fn real_path(&self) -> PathBuf {
        let bytes = self
            .path_bytes
            .as_ref()
            .and_then(|text| hex::decode(text).ok());
        match bytes {
            Some(bytes) => PathBuf::from(
                <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes),
            ),
            None => PathBuf::from(&self.path),
        }
    }
}

fn store(state_directory: &Path) -> PathBuf {
    state_directory.join("backups")
}

/// Keeps a copy of the file at a path.
pub(super) fn keep(
    path: &Path,
    attributes: Attributes,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let cannot = |error: io::Error| {
        StepError::because(
            format!("cannot store a backup of {}", path.display()),
            error,
        )
    };
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    let mut file = File::from(place.open().map_err(io::Error::from).map_err(cannot)?);
    let store = store(write_access.state_directory());
    bunraku_files::create_private_directory(&store).map_err(cannot)?;
    let sha256 = checksum(&mut file).map_err(cannot)?;
    let kept = store.join(&sha256);
    if !kept.exists() {
        io::Seek::rewind(&mut file).map_err(cannot)?;
        let mut copy = StagedFile::create(&kept).map_err(cannot)?;
        io::copy(&mut file, &mut copy).map_err(cannot)?;
        copy.publish().map_err(cannot)?;
    }
    let text = path.to_str();
    let backup = Backup {
        at: jiff::Timestamp::now().as_second(),
        path: path.to_string_lossy().into_owned(),
        path_bytes: text
            .is_none()
            .then(|| hex::encode(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))),
        sha256,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
    };
    let mut line = serde_json::to_vec(&backup).expect("a backup is plain data");
    line.push(b'\n');
    let mut options = OpenOptions::new();
    let mut index = options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(store.join("index"))
        .map_err(cannot)?;
    index.write_all(&line).map_err(cannot)
}

/// Returns all backups, the oldest first, or only those of one path.
pub fn backups(state_directory: &Path, of: Option<&Path>) -> Result<Vec<Backup>, BackupError> {
    let path = store(state_directory).join("index");
    let index = match File::open(&path) {
        Ok(index) => index,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(BackupError { path, source }),
    };
    let mut found = Vec::new();
    for line in io::BufReader::new(index).lines() {
        let line = line.map_err(|source| BackupError {
            path: path.clone(),
            source,
        })?;
        // A line that a crash cut short is ignored.
        if let Ok(backup) = serde_json::from_str::<Backup>(&line)
            && of.is_none_or(|of| backup.real_path() == of)
        {
            found.push(backup);
        }
    }
    Ok(found)
}

/// Opens the stored content and returns its attributes, to restore it.
pub(super) fn open(
    backup: &Backup,
    state_directory: &Path,
) -> Result<(impl Read + use<>, Finish), StepError> {
    let kept = store(state_directory).join(&backup.sha256);
    let file = File::open(&kept)
        .map_err(|error| StepError::because("the backup no longer exists", error))?;
    Ok((
        file,
        Finish {
            mode: backup.mode,
            uid: Some(backup.uid),
            gid: Some(backup.gid),
        },
    ))
}

/// Restores a backup. The current file is kept in turn.
pub(crate) fn put_back(backup: &Backup, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let path = backup.real_path();
    if let Ok(metadata) = fs::symlink_metadata(&path)
        && metadata.is_file()
    {
        use std::os::unix::fs::MetadataExt;
        let now = Attributes {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            names: metadata.nlink(),
            size: metadata.size(),
        };
        keep(&path, now, write_access)?;
    }
    let (mut content, finish) = open(backup, write_access.state_directory())?;
    land::file(&path, &mut content, finish, None, write_access)
}
