//! The lock that allows one apply at a time on a machine, and its owner.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bunraku_process::{LeftProcess, WorkLog};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The time between asking a process of an earlier apply to end and killing it.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which processes that cannot be ended are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// The process that holds the lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockOwner {
    pub pid: u32,
    pub user: String,
    pub command: String,
    pub since: String,
}

impl std::fmt::Display for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "pid {} of {} since {} (`{}`)",
            self.pid, self.user, self.since, self.command
        )
    }
}

/// The reason why the lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another apply is running: {}", .0.as_ref().map_or("its owner is unknown".to_owned(), LockOwner::to_string))]
    Held(Option<LockOwner>),
    #[error("processes of an earlier apply have not ended: {}", list(.0))]
    Left(Vec<LeftProcess>),
    #[error("cannot use the lock {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The apply lock. Held until it is dropped, or the process ends in any way.
#[derive(Debug)]
pub struct ApplyLock {
    _file: File,
}

impl ApplyLock {
    /// Takes the lock, waiting at most this long.
    ///
    /// The kernel's lock decides, not the text in the file: a crashed owner holds nothing.
    pub fn take(
        state_directory: &Path,
        owner: &LockOwner,
        wait: Duration,
    ) -> Result<Self, LockError> {
        let path = state_directory.join("apply.lock");
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(state_directory).map_err(failed)?;
        let mut options = std::fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let mut file = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => file,
            Err(rustix::io::Errno::WOULDBLOCK) => wait_for(file, wait)
                .map_err(failed)?
                .ok_or_else(|| LockError::Held(read_owner(&path)))?,
            Err(error) => return Err(failed(error.into())),
        };
        let text = serde_json::to_vec(owner).expect("an owner is plain data");
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(&text))
            .map_err(failed)?;
        end_leftovers(state_directory, wait)?;
        Ok(Self { _file: file })
    }

    /// Returns the owner of the lock, if it is held.
    pub fn owner(state_directory: &Path) -> Option<LockOwner> {
        let path = state_directory.join("apply.lock");
        let file = File::open(&path).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => read_owner(&path),
            _ => None,
        }
    }
}

/// Returns the records of the programs that applies with this state directory have started.
pub(crate) fn work_log(state_directory: &Path) -> WorkLog {
    WorkLog::new(state_directory.join("work"))
}

/// Ends what an apply that was killed left behind. What cannot be ended is waited for.
fn end_leftovers(state_directory: &Path, wait: Duration) -> Result<(), LockError> {
    let deadline = Instant::now() + wait;
    let log = work_log(state_directory);
    loop {
        let left = log.end_leftovers(GRACE).map_err(|source| LockError::Io {
            path: state_directory.join("work"),
            source,
        })?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(LockError::Left(left));
        }
        std::thread::sleep(LOOK);
    }
}

fn list(left: &[LeftProcess]) -> String {
    let left: Vec<String> = left.iter().map(LeftProcess::to_string).collect();
    left.join(", ")
}

/// Waits in a separate thread, as the kernel's wait has no deadline. When the deadline
/// passes first, the thread releases the lock as soon as it gets it.
fn wait_for(file: File, wait: Duration) -> io::Result<Option<File>> {
    if wait.is_zero() {
        return Ok(None);
    }
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let result = flock(&file, FlockOperation::LockExclusive)
            .map(|()| file)
            .map_err(io::Error::from);
        // If the receiver is gone, dropping the file releases the lock.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(wait) {
        Ok(result) => result.map(Some),
        Err(_) => Ok(None),
    }
}

fn read_owner(path: &Path) -> Option<LockOwner> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(command: &str) -> LockOwner {
        LockOwner {
            pid: std::process::id(),
            user: "root".to_owned(),
            command: command.to_owned(),
            since: "now".to_owned(),
        }
    }

    #[test]
    fn a_second_apply_is_refused_and_names_the_running_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let first =
            ApplyLock::take(directory.path(), &owner("first"), Duration::ZERO).expect("free");
        let error =
            ApplyLock::take(directory.path(), &owner("second"), Duration::ZERO).expect_err("held");
        assert!(error.to_string().contains("`first`"), "{error}");
        assert_eq!(ApplyLock::owner(directory.path()), Some(owner("first")));
        drop(first);
        assert_eq!(ApplyLock::owner(directory.path()), None);
        ApplyLock::take(directory.path(), &owner("third"), Duration::ZERO).expect("free again");
    }

    #[test]
    fn a_second_apply_that_waits_continues_when_the_first_is_done() {
        let directory = tempfile::tempdir().expect("a directory");
        let first =
            ApplyLock::take(directory.path(), &owner("first"), Duration::ZERO).expect("free");
        let path = directory.path().to_owned();
        let second = std::thread::spawn(move || {
            ApplyLock::take(&path, &owner("second"), Duration::from_secs(600))
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
        second
            .join()
            .expect("no panic")
            .expect("the lock became free");
    }
}
