//! A read-only view of this server's data while its datastore answers no requests.
//!
//! etcd before 3.5 answers no client between its start and the first contact with a
//! leader. Until then, a separate, isolated etcd opens a copy of the data. The
//! datastore itself keeps running, untouched, and waits for the others.
//!
//! Rule: only this server reads the copy, nobody writes to it, and it is deleted
//! afterwards. A write to it would create a second history.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::admin::Admin;
use super::data;
use super::process::{Process, ProcessError, Program};
use crate::directory::Directory;
use crate::order::DatastoreOrder;

/// The time limit for the first answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);

/// Flags that make the copy a cluster of one. Until etcd has read that, it would
/// contact the other datastores in the name of the original: so it gets no
/// credentials that they accept.
const ALONE: [&str; 6] = [
    "--force-new-cluster",
    "--peer-auto-tls",
    "--peer-client-cert-auth=false",
    "--peer-cert-file=",
    "--peer-key-file=",
    "--peer-trusted-ca-file=",
];

/// The subdirectory that holds the copy.
const DATA: &str = "data";

/// The reason why there is no view.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("cannot copy the data to {}", path.display())]
    Copy {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cannot read a copy of the data; see {}", .0.display())]
    Unreadable(PathBuf),
}

/// A copy of the data that answers requests.
pub struct View {
    /// The URL on which this server reaches it.
    pub url: String,
    process: Process,
    place: PathBuf,
}

impl View {
    pub async fn open(
        program: &Program,
        directory: &Directory,
        order: &DatastoreOrder,
        admin: &Admin,
    ) -> Result<Self, ViewError> {
        let place = place_in(directory);
        let from = data::path(directory, order);
        let failed = |source| ViewError::Copy {
            path: place.clone(),
            source,
        };
        let [client, peer] = free_urls(program).map_err(failed)?;
        let fresh = place.clone();
        let copied = tokio::task::spawn_blocking(move || copy_anew(&from, &fresh));
        let copied = copied.await.map_err(std::io::Error::other);
        copied.and_then(|copied| copied).map_err(failed)?;
        let alone = Program {
            client_url: client.clone(),
            peer_url: peer.clone(),
            flags: Vec::new(),
            ..program.clone()
        };
        let order = DatastoreOrder {
            initial_cluster: vec![(program.name.clone(), peer)],
            ..order.clone()
        };
        let process = match alone.spawn(directory, &order, &place.join(DATA), &ALONE) {
            Ok(process) => process,
            Err(error) => {
                discard_or_warn(&place);
                return Err(error.into());
            }
        };
        let mut view = Self {
            url: client,
            process,
            place,
        };
        if view.answers(admin).await {
            Ok(view)
        } else {
            view.close().await;
            Err(ViewError::Unreadable(directory.datastore_log()))
        }
    }

    async fn answers(&mut self, admin: &Admin) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if admin.progress(&self.url).await.is_ok() {
                return true;
            }
            tokio::select! {
                _ = self.process.ended() => return false,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        false
    }

    /// Stops the view and deletes the copy.
    pub async fn close(mut self) {
        self.process.end().await;
        discard_or_warn(&self.place);
    }

    /// Deletes a copy that an earlier life may have left behind.
    pub fn discard_leftover(directory: &Directory) {
        discard_or_warn(&place_in(directory));
    }
}

fn place_in(directory: &Directory) -> PathBuf {
    directory.path().join("view")
}

fn discard_or_warn(place: &Path) {
    if let Err(error) = discard(place) {
        tracing::warn!(error = %error, "cannot delete a copy of the data");
    }
}

fn discard(place: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies everything or nothing: the remains of a partial copy would take up space
/// that the datastore itself needs.
fn copy_anew(from: &Path, place: &Path) -> std::io::Result<()> {
    discard(place)?;
    bunraku_files::create_private_directory(place)?;
    copy(from, &place.join(DATA)).inspect_err(|_| discard_or_warn(place))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    bunraku_files::create_private_directory(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?
        } else {
            std::fs::copy(entry.path(), to).map(drop)?
        }
    }
    Ok(())
}

/// Returns two URLs with free ports, on the host that the certificate is valid for.
fn free_urls(program: &Program) -> std::io::Result<[String; 2]> {
    let host = program.client_url.rsplit_once(':');
    let host = host.map_or(program.client_url.as_str(), |(host, _)| host);
    let bind = || std::net::TcpListener::bind((program.listen, 0));
    let listeners = [bind()?, bind()?];
    let mut urls = Vec::new();
    for listener in &listeners {
        urls.push(format!("{host}:{}", listener.local_addr()?.port()));
    }
    Ok(urls.try_into().expect("two were bound"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_copy_that_fails_in_the_middle_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, place) = (directory.path().join("from"), directory.path().join("view"));
        std::fs::create_dir_all(from.join("member")).expect("made");
        std::fs::write(from.join("a"), "whole").expect("written");
        copy_anew(&from, &place).expect("copied");
        assert_eq!(
            std::fs::read(place.join("data/a")).expect("there"),
            b"whole"
        );
        // This link is broken and cannot be read through.
        std::os::unix::fs::symlink("nowhere", from.join("member/wal")).expect("made");
        assert!(copy_anew(&from, &place).is_err());
        assert!(!place.exists());
    }
}
