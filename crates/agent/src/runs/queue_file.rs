//! The queue on disk. Each change is written completely or not at all, before anybody learns of it.

use std::io;
use std::path::{Path, PathBuf};

use bunraku_process::WorkLog;

use super::queue::Queue;

/// The reason why the queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is corrupt; move it away to continue (queued runs may then be lost)", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// The queue and its file.
pub(crate) struct QueueFile {
    path: PathBuf,
    queue: Queue,
}

impl QueueFile {
    pub(crate) fn open(data_dir: &Path) -> Result<Self, QueueError> {
        let path = data_dir.join("queue.json");
        let queue = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|source| QueueError::Damaged {
                path: path.clone(),
                source,
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Queue::default(),
            Err(source) => return Err(QueueError::Read { path, source }),
        };
        Ok(Self { path, queue })
    }

    /// Returns the records of the programs of runs, which are next to the queue.
    pub(crate) fn work_log(&self) -> WorkLog {
        WorkLog::new(self.path.with_file_name("work"))
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Changes the queue. If the change cannot be written, it is discarded.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Queue) -> T) -> io::Result<T> {
        let mut next = self.queue.clone();
        let outcome = change(&mut next);
        if next != self.queue {
            self.save(&next)?;
            self.queue = next;
        }
        Ok(outcome)
    }

    /// Changes the queue even if the change can only be kept in memory: a run that has begun or
    /// ended has done so, whatever the state of the disk.
    pub(crate) fn change_anyway<T>(&mut self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let before = self.queue.clone();
        let outcome = change(&mut self.queue);
        if self.queue != before
            && let Err(error) = self.save(&self.queue)
        {
            tracing::error!(path = %self.path.display(), error = %error, "the run queue is in memory only");
        }
        outcome
    }

    /// Starts the next run. The start is written when its report begins: until then, a crash leaves
    /// the run pending.
    pub(crate) fn start(
        &mut self,
        now: jiff::Timestamp,
        held_by: Option<bunraku_model::RunId>,
    ) -> Option<super::queue::QueuedRun> {
        self.queue.start(now, held_by)
    }

    fn save(&self, queue: &Queue) -> io::Result<()> {
        let text = serde_json::to_vec(queue).expect("a queue is plain data that JSON can hold");
        bunraku_files::replace(&self.path, &text, 0o600)
    }
}
