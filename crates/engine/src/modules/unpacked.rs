//! A module's files on disk, for as long as they are needed.
//!
//! Each run writes them again from the verified content, into a directory that only the
//! engine's user can enter. So there is no need to trust that files from the last run
//! are still those that were signed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bunraku_module::File;

/// A directory that is removed with its content when this is dropped.
#[derive(Debug)]
pub(super) struct UnpackedModule {
    pub(super) directory: PathBuf,
}

impl UnpackedModule {
    pub(super) fn new(files: &[File], state_directory: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let all = state_directory.join("modules").join("running");
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(&all)?;
        remove_left_behind(&all);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = all.join(format!("{}-{number}", std::process::id()));
        // Left by an earlier process with the same process ID.
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let unpacked = Self { directory };
        for file in files {
            unpacked.write(file)?;
        }
        Ok(unpacked)
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let path = self.directory.join(&file.path);
        if let Some(above) = path.parent() {
            let mut private = fs::DirBuilder::new();
            private.recursive(true).mode(0o700).create(above)?;
        }
        let mode = if file.executable { 0o700 } else { 0o600 };
        let mut options = fs::OpenOptions::new();
        let mut written = (options.write(true).create_new(true).mode(mode)).open(path)?;
        written.write_all(&file.bytes)
    }
}

impl Drop for UnpackedModule {
    fn drop(&mut self) {
        // The next run removes whatever could not be removed now.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes directories of killed runs, which could not clean up. Their processes are gone.
fn remove_left_behind(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').next().unwrap_or_default();
        let alive = Path::new("/proc").join(process).exists();
        if process.parse::<u32>().is_ok() && !alive {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
