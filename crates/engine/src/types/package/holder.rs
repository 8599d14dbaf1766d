//! Finding the holder of a package manager's lock, and waiting until it is released.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{StepError, StepResult, WriteAccess};

/// The time between checks. The kernel does not notify when another process releases a
/// lock, so it is polled.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Waits until no process holds any of the files. `holder` checks one of them.
pub(super) fn wait(
    files: &[PathBuf],
    begun: Instant,
    timeout: Duration,
    write_access: &WriteAccess<'_>,
    holder: impl Fn(&Path) -> Option<u32>,
) -> StepResult {
    let deadline = begun + timeout;
    let mut transcript = false;
    loop {
        let held = files.iter().find_map(|file| Some((file, holder(file)?)));
        let Some((file, pid)) = held else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(StepError::new(format!(
                "the package manager is still locked by {} ({}) after {} s",
                process(pid),
                file.display(),
                timeout.as_secs_f64()
            )));
        }
        if !transcript {
            transcript = true;
            let line = format!("waiting for {} to release {}", process(pid), file.display());
            write_access.output(crate::Stream::Stderr, &line);
        }
        if write_access.cancellation().sleep(BETWEEN_LOOKS) {
            return Err(StepError::interrupted());
        }
    }
}

/// Describes a process: `process 123 (apt-get)`.
fn process(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    }
}

/// Returns the process that holds a lock on a file, from the kernel's table.
pub(super) fn lock_holder(file: &Path) -> Option<u32> {
    let metadata = std::fs::metadata(file).ok()?;
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    find(
        &table,
        &format!("{major:02x}:{minor:02x}:{}", metadata.ino()),
    )
}

fn find(table: &str, place: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // A line with an arrow is a process that waits.
        if fields.get(1) == Some(&"->") || *fields.get(5)? != place {
            return None;
        }
        fields.get(4)?.parse().ok()
    })
}

/// Returns the running process whose ID a file contains.
pub(super) fn pid_file_holder(file: &Path) -> Option<u32> {
    let pid: u32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_counts_and_not_who_waits() {
        let table = "1: POSIX  ADVISORY  WRITE 4242 fe:01:77 0 EOF\n\
                     1: -> POSIX  ADVISORY  WRITE 99 fe:01:78 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 7 fe:01:79 0 EOF\n";
        assert_eq!(find(table, "fe:01:77"), Some(4242));
        assert_eq!(find(table, "fe:01:78"), None);
        assert_eq!(find(table, "fe:01:80"), None);
    }
}
