//! What this server's datastore has, for reading, while it answers nobody.
//!
//! etcd before 3.5 answers no client between its start and the first leader
//! that it hears. Until then a copy of its data is opened by an etcd that is
//! alone with it. The datastore itself goes on, untouched, waiting for the
//! others.
//!
//! Rule: the copy is only read, by this server, and is thrown away. What was
//! written to it would be a second history.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::admin::Admin;
use super::data;
use super::process::{Process, ProcessError, Program};
use crate::directory::Directory;
use crate::order::Order;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);

/// It takes itself for the only one. Until it has read that, it would speak to
/// the others in the name of the datastore that it is a copy of: so it has
/// nothing that they would let in.
const ALONE: [&str; 6] = [
    "--force-new-cluster",
    "--peer-auto-tls",
    "--peer-client-cert-auth=false",
    "--peer-cert-file=",
    "--peer-key-file=",
    "--peer-trusted-ca-file=",
];

/// Where the copy lies in its place.
const DATA: &str = "data";

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("the data cannot be copied to {}", path.display())]
    Copy {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("a copy of the data cannot be read; see {}", .0.display())]
    Unreadable(PathBuf),
}

/// A copy that answers.
pub struct View {
    /// Where, for this server.
    pub url: String,
    process: Process,
    place: PathBuf,
}

impl View {
    pub async fn open(
        program: &Program,
        directory: &Directory,
        order: &Order,
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
        let order = Order {
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
        match view.answers(admin).await {
            true => Ok(view),
            false => {
                view.close().await;
                Err(ViewError::Unreadable(directory.datastore_log()))
            }
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

    /// Throws it away.
    pub async fn close(mut self) {
        self.process.end().await;
        discard_or_warn(&self.place);
    }

    /// Throws away what an earlier life may have left.
    pub fn discard_leftover(directory: &Directory) {
        discard_or_warn(&place_in(directory));
    }
}

fn place_in(directory: &Directory) -> PathBuf {
    directory.path().join("view")
}

fn discard_or_warn(place: &Path) {
    if let Err(error) = discard(place) {
        tracing::warn!(error = %error, "a copy of the data could not be thrown away");
    }
}

fn discard(place: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A whole copy or none: what is left of half a one would take the room that
/// the datastore itself needs.
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
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => std::fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}

/// Two ports that nobody has, on the host that its certificate is for.
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
        // Nothing can be read through this one.
        std::os::unix::fs::symlink("nowhere", from.join("member/wal")).expect("made");
        assert!(copy_anew(&from, &place).is_err());
        assert!(!place.exists());
    }
}
