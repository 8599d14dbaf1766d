//! Allows one process per directory.
//!
//! Only the kernel's lock counts: it is released with the process, regardless of how the process
//! ends. The file's text only tells people who owns the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::StoreError;

const RETRY: Duration = Duration::from_millis(20);

/// The lock, held as long as this value exists.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn acquire(directory: &Path, wait: Duration) -> Result<Self, StoreError> {
        let path = directory.join("lock");
        let mut file = open(&path)?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(RETRY);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked {
                        path: directory.to_owned(),
                        owner: owner(&mut file),
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed(&path, source)),
            }
        }
        write_owner(&mut file).map_err(|source| failed(&path, source))?;
        Ok(Self { _file: file })
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| failed(path, source))
}

fn write_owner(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn owner(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}

fn failed(path: &Path, source: std::io::Error) -> StoreError {
    StoreError::Io {
        doing: format!("lock {}", path.display()),
        source,
    }
}
