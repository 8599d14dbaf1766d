//! The files of a commit on this server: unpacked once, and never changed.

use std::path::{Path, PathBuf};

use bunraku_model::{CodeId, ContentId, EnvironmentName};
use futures::TryStreamExt;
use uuid::Uuid;

use super::tree::{self, PackedTree};
use super::{Code, CodeError, CodeRecord, blocking, io};

impl Code {
    /// Returns the directory with a commit's files. The files never change.
    pub async fn tree(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
    ) -> Result<PathBuf, CodeError> {
        let place = self.place(environment, commit);
        if tokio::fs::try_exists(&place).await.unwrap_or(false) {
            return Ok(place);
        }
        let _one = self.unpacking.lock().await;
        if tokio::fs::try_exists(&place).await.unwrap_or(false) {
            return Ok(place);
        }
        let record = self.record(environment, commit).await?;
        let record = record.ok_or_else(|| CodeError::Missing(commit.clone()))?;
        self.unpack(&record, &place).await?;
        Ok(place)
    }

    fn place(&self, environment: &EnvironmentName, commit: &CodeId) -> PathBuf {
        let below = self.directory.join("trees").join(environment.as_str());
        below.join(&commit.0)
    }

    /// Unpacks under a temporary name first, so a directory with its final name
    /// is complete.
    async fn unpack(&self, record: &CodeRecord, place: &Path) -> Result<(), CodeError> {
        let mut archives = Vec::new();
        for content in record.contents() {
            archives.push(self.download(content).await?);
        }
        let (place, limits) = (place.to_owned(), self.limits());
        let fresh = self.scratch().await?;
        blocking(move || {
            let open = |(number, path): (usize, &PathBuf)| {
                let packed = std::fs::File::open(path).map_err(io("read the packed code"))?;
                Ok(PackedTree {
                    packed: std::io::BufReader::new(packed),
                    // The second one has the modules.
                    drops_bad_links: number > 0,
                })
            };
            let trees: Result<Vec<_>, CodeError> = archives.iter().enumerate().map(open).collect();
            let outcome = trees.and_then(|trees| Ok(tree::unpack(trees, &fresh, limits)?));
            for archive in &archives {
                let _ = std::fs::remove_file(archive);
            }
            let outcome = outcome.and_then(|()| publish(&fresh, &place));
            if outcome.is_err() {
                let _ = std::fs::remove_dir_all(&fresh);
            }
            outcome
        })
        .await
    }

    /// Reads and verifies a whole blob, before any of its files is unpacked.
    async fn download(&self, content: ContentId) -> Result<PathBuf, CodeError> {
        let stream = self.blobs.open(content).await?;
        let reader = tokio_util::io::StreamReader::new(stream.map_err(std::io::Error::other));
        let mut reader = Box::pin(reader);
        let incoming = self.scratch().await?;
        let mut file = tokio::fs::File::create(&incoming)
            .await
            .map_err(io("write the packed code"))?;
        tokio::io::copy(&mut reader, &mut file)
            .await
            .map_err(io("read the code's content"))?;
        tokio::io::AsyncWriteExt::flush(&mut file)
            .await
            .map_err(io("write the packed code"))?;
        Ok(incoming)
    }

    pub(super) async fn scratch(&self) -> Result<PathBuf, CodeError> {
        let incoming = self.directory.join("incoming");
        tokio::fs::create_dir_all(&incoming)
            .await
            .map_err(io(format!("create {}", incoming.display())))?;
        Ok(incoming.join(Uuid::new_v4().simple().to_string()))
    }
}

fn publish(fresh: &Path, place: &Path) -> Result<(), CodeError> {
    let naming = || io(format!("name {}", place.display()));
    let parent = place.parent().unwrap_or(place);
    std::fs::create_dir_all(parent).map_err(naming())?;
    bunraku_files::move_into_place(fresh, place).map_err(naming())
}
