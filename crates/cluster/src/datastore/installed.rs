//! Detects which etcd is installed.
//!
//! The content of the file identifies a program, not the time of its installation:
//! reinstalling the same package is not a change. The file is read again only when
//! its metadata changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_process::{OutputLimits, Program as Executable};

use crate::failover::Program;

/// The time limit for printing the version.
const PATIENCE: Duration = Duration::from_secs(10);

/// File metadata that differs after the file was replaced or written to.
type Stamp = [i128; 7];

/// Inspects the file. Clones share the cached result.
#[derive(Clone)]
pub struct Inspector {
    path: PathBuf,
    seen: Arc<Mutex<Option<(Stamp, Program)>>>,
}

impl Inspector {
    pub fn new(path: PathBuf) -> Self {
        let seen = Arc::default();
        Self { path, seen }
    }

    /// Returns the installed program, or `None` if it cannot be read.
    pub async fn read(&self) -> Option<Program> {
        let stamp = stamp(&self.path)?;
        if let Some((known, program)) = &*self.cached()
            && *known == stamp
        {
            return Some(program.clone());
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path));
        let text = read.await.ok()?.ok()?;
        let program = Program {
            content: ContentId::of(&text).to_string(),
            version: version(&self.path).await,
        };
        *self.cached() = Some((stamp, program.clone()));
        Some(program)
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Option<(Stamp, Program)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some([
        file.dev().into(),
        file.ino().into(),
        file.size().into(),
        file.mtime().into(),
        file.mtime_nsec().into(),
        file.ctime().into(),
        file.ctime_nsec().into(),
    ])
}

/// Returns the version that the program prints, or `None` if it cannot be run.
async fn version(path: &Path) -> Option<String> {
    let program = Executable::new(path).arg("--version").env_clear();
    let output = program
        .output(OutputLimits::with_timeout(PATIENCE))
        .await
        .ok()?;
    let text = output.stdout_text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("etcd Version: "));
    Some(line.filter(|_| output.status.success())?.trim().to_owned())
}
