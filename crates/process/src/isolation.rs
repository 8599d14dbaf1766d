//! Runs a program of somebody else: as another user, and without sight of given directories.
//!
//! [`Isolation::wrap`] starts a small helper (this binary, with a hidden command) in new namespaces.
//! The helper calls [`Isolation::become_program`], which hides the directories and then turns into
//! the program. The program sees one directory of those that are hidden, read-only and at its usual
//! path, and has a `/tmp` of its own. It sees no process but its own, and ends with its starter.
//!
//! Absent on purpose: limits on the network.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{Resource, Rlimit, setrlimit};

const UNSHARE: &str = "/usr/bin/unshare";
const SETPRIV: &str = "/usr/bin/setpriv";
/// Maximum number of processes of the program's user.
const MOST_PROCESSES: u64 = 512;
/// Maximum number of open files.
const MOST_FILES: u64 = 1_024;

/// The identity and the sight of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Isolation {
    pub uid: u32,
    pub gid: u32,
    /// Directories that the program does not see.
    pub hidden: Vec<PathBuf>,
    /// The directory that the program works in. It may be below a hidden one.
    pub shown: PathBuf,
}

impl Isolation {
    /// Returns the words that start a helper in new namespaces.
    pub fn wrap(helper: Vec<OsString>) -> Vec<OsString> {
        let options = [
            "--mount",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ];
        let mut words: Vec<OsString> = vec![UNSHARE.into()];
        words.extend(options.map(OsString::from));
        words.extend(helper);
        words
    }

    /// Hides the directories and becomes the program. Returns only if that fails.
    pub fn become_program(&self, words: &[OsString]) -> io::Error {
        if let Err(error) = self.hide() {
            return error;
        }
        // A second lock on the same door, where the kernel has it.
        let _ = confine_writes();
        for (resource, most) in [
            (Resource::Core, 0),
            (Resource::Nproc, MOST_PROCESSES),
            (Resource::Nofile, MOST_FILES),
        ] {
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            if let Err(error) = setrlimit(resource, limit) {
                return error.into();
            }
        }
        Command::new(SETPRIV)
            .arg(format!("--reuid={}", self.uid))
            .arg(format!("--regid={}", self.gid))
            .args(["--clear-groups", "--no-new-privs", "--inh-caps=-all"])
            .args(["--bounding-set=-all", "--"])
            .args(words)
            .exec()
    }

    fn hide(&self) -> io::Result<()> {
        // Open it first: it is about to be hidden.
        let shown = rustix::fs::open(
            &self.shown,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        cover(Path::new("/tmp"), c"mode=1777,size=256m")?;
        let hidden: Vec<&PathBuf> = self.hidden.iter().filter(|path| path.is_dir()).collect();
        for path in &hidden {
            cover(path, c"mode=0755,size=4m")?;
        }
        std::fs::create_dir_all(&self.shown)?;
        mount_bind(format!("/proc/self/fd/{}", shown.as_raw_fd()), &self.shown)?;
        let fixed = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(&self.shown, fixed, "")?;
        for path in hidden {
            mount_remount(path, fixed, "")?;
        }
        // The old working directory would lead to what is hidden now.
        std::env::set_current_dir(&self.shown)
    }
}

/// Mounts an empty directory over another one.
fn cover(path: &Path, options: &std::ffi::CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", path, "tmpfs", flags, options)?)
}

/// Lets this process write to its own `/tmp` and to devices only, whatever file modes say.
fn confine_writes() -> Result<(), landlock::RulesetError> {
    let all = AccessFs::from_all(ABI::V5);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for (path, allowed) in [
        ("/", AccessFs::from_read(ABI::V5)),
        ("/tmp", all),
        ("/dev/null", device),
        ("/dev/zero", device),
        ("/dev/full", device),
    ] {
        if let Ok(opened) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(opened, allowed))?;
        }
    }
    rules.restrict_self()?;
    Ok(())
}
