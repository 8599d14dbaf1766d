//! Mounted file systems and their usage.
//!
//! Asking a network file system for its size can hang as long as its server is down, and no signal
//! interrupts that. So each query runs on its own thread with a deadline. No second query is sent
//! while the first one hangs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use serde_json::{Value, json};

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::units;
use super::warning::FactWarning;

/// The time limit for a network file system to return its size.
const REMOTE_DEADLINE: Duration = Duration::from_secs(2);

/// Mount points with a pending query and its start time, across all collections.
static OPEN: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());

/// One line of /proc/self/mounts.
#[derive(Debug, PartialEq)]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) path: String,
    pub(super) kind: String,
    pub(super) options: String,
}

/// The size and usage of a file system, in bytes.
#[derive(Default, Clone, Copy)]
struct Sizes {
    total: u64,
    available: u64,
    used: u64,
}

pub(super) fn collect(
    machine: &Machine,
    warnings: &mut Vec<FactWarning>,
) -> Result<Facts, GroupError> {
    let mut mountpoints = Facts::new();
    for mount in list(machine)? {
        let sizes = sizes(machine.path(&mount.path), is_remote(&mount.kind));
        if let Err(problem) = sizes {
            warnings.push(FactWarning::in_group(
                "mountpoints",
                format!("{}: {problem}; its sizes are reported as 0", mount.path),
            ));
        }
        let fact = fact(&mount, sizes.unwrap_or_default());
        mountpoints.insert(mount.path, fact);
    }
    Ok(single("mountpoints", Value::Object(mountpoints)))
}

/// Returns the mounts that Facter shows: without /proc, /sys and automounters.
pub(super) fn list(machine: &Machine) -> Result<Vec<Mount>, GroupError> {
    let cmdline = machine.optional("/proc/cmdline").unwrap_or_default();
    let root = root_device(&cmdline);
    let mut mounts = parse(&machine.text("/proc/self/mounts")?);
    mounts.retain(|mount| {
        let below = |top: &str| {
            let rest = mount.path.strip_prefix(top);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let kernels = (below("/proc") || below("/sys")) && mount.kind != "tmpfs";
        !kernels && mount.kind != "autofs"
    });
    for mount in &mut mounts {
        if let ("/dev/root", Some(root)) = (mount.device.as_str(), root) {
            mount.device = root.to_owned();
        }
    }
    Ok(mounts)
}

pub(super) fn parse(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let mut words = line.split(' ').map(unescape);
        Some(Mount {
            device: words.next()?,
            path: words.next()?,
            kind: words.next()?,
            options: words.next()?,
        })
    };
    text.lines().filter_map(line).collect()
}

/// Decodes octal escapes: spaces, tabs, line ends and backslashes are written like `\040`.
fn unescape(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the device that the kernel boots from according to its command line, unless it is given
/// as an id.
fn root_device(cmdline: &str) -> Option<&str> {
    cmdline
        .split_whitespace()
        .find_map(|word| word.strip_prefix("root="))
        .filter(|root| root.starts_with("/dev/"))
}

fn is_remote(kind: &str) -> bool {
    const KINDS: [&str; 13] = [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "lustre",
        "nfs",
        "ocfs2",
        "orangefs",
        "smb",
    ];
    kind.starts_with("fuse") || KINDS.iter().any(|remote| kind.starts_with(remote))
}

fn sizes(path: PathBuf, remote: bool) -> Result<Sizes, &'static str> {
    if remote {
        ask_with_deadline(path, REMOTE_DEADLINE, ask)
    } else {
        ask(&path)
    }
}

fn ask(path: &PathBuf) -> Result<Sizes, &'static str> {
    let answer = statvfs(path).map_err(|_| "the kernel does not report its size")?;
    let bytes = |blocks: u64| blocks.saturating_mul(answer.f_frsize);
    Ok(Sizes {
        total: bytes(answer.f_blocks),
        available: bytes(answer.f_bavail),
        used: bytes(answer.f_blocks.saturating_sub(answer.f_bfree)),
    })
}

fn ask_with_deadline(
    path: PathBuf,
    deadline: Duration,
    ask: fn(&PathBuf) -> Result<Sizes, &'static str>,
) -> Result<Sizes, &'static str> {
    let open = || OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // A younger query belongs to another collection that runs at the same time.
    let since = *open().entry(path.clone()).or_insert_with(Instant::now);
    if since.elapsed() >= deadline {
        return Err("an earlier query of its size still hangs");
    }
    let (answer, answered) = mpsc::sync_channel(1);
    let asked = path.clone();
    let thread = thread::Builder::new().name("statvfs".to_owned());
    let started = thread.spawn(move || {
        let sizes = ask(&asked);
        open().remove(&asked);
        // Nobody waits for the answer after the deadline.
        let _ = answer.send(sizes);
    });
    if started.is_err() {
        open().remove(&path);
        return Err("cannot start a thread to query its size");
    }
    answered
        .recv_timeout(deadline)
        .unwrap_or(Err("it does not respond: is its server down?"))
}

fn fact(mount: &Mount, sizes: Sizes) -> Value {
    let capacity = units::disk_capacity(sizes.used, sizes.used.saturating_add(sizes.available));
    let options: Vec<&str> = mount.options.split(',').map(str::trim).collect();
    json!({
        "device": mount.device,
        "filesystem": mount.kind,
        "options": options,
        "size": units::bytes(sizes.total),
        "size_bytes": sizes.total,
        "available": units::bytes(sizes.available),
        "available_bytes": sizes.available,
        "used": units::bytes(sizes.used),
        "used_bytes": sizes.used,
        "capacity": capacity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_are_read() {
        let mounts = parse("/dev/sdb1 /media/My\\040Disk\\134 vfat rw,noexec 0 0\nshort line\n");
        assert_eq!(
            mounts,
            [Mount {
                device: "/dev/sdb1".to_owned(),
                path: "/media/My Disk\\".to_owned(),
                kind: "vfat".to_owned(),
                options: "rw,noexec".to_owned(),
            }]
        );
    }

    #[test]
    fn a_hanging_file_system_costs_its_deadline_once() {
        let hang = |_: &PathBuf| {
            thread::sleep(Duration::from_secs(600));
            Ok(Sizes::default())
        };
        let ask = || ask_with_deadline("/made-up/hangs".into(), Duration::from_millis(50), hang);
        assert_eq!(
            ask().err(),
            Some("it does not respond: is its server down?")
        );
        assert_eq!(
            ask().err(),
            Some("an earlier query of its size still hangs")
        );
    }

    #[test]
    fn two_collections_at_once_both_get_an_answer() {
        let slow = |_: &PathBuf| {
            thread::sleep(Duration::from_millis(100));
            Ok(Sizes::default())
        };
        let ask = move || ask_with_deadline("/made-up/slow".into(), Duration::from_secs(60), slow);
        let other = thread::spawn(ask);
        assert!(ask().is_ok());
        assert!(other.join().unwrap().is_ok());
    }

    #[test]
    fn a_root_given_as_an_id_names_no_device() {
        assert_eq!(root_device("quiet root=/dev/vda1 ro"), Some("/dev/vda1"));
        assert_eq!(root_device("root=PARTUUID=1-02"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([a-z/\\\\0-7é]{0,12} ?){0,12}\n?.{0,9}") {
            parse(&text);
            root_device(&text);
        }
    }
}
