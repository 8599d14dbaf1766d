//! Runs an executable fact within limits.
//!
//! It has a process group of its own, which is killed whole: at the deadline,
//! when it prints too much, and for what it leaves behind when it ends. Its
//! environment is minimal. Nothing here waits longer than the deadline, not
//! even when a process that left the group keeps the output open.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::file::SIZE_LIMIT;
use super::parse::Trouble;

/// Complaints are shown, not kept.
const STDERR_LIMIT: u64 = 16 * 1024;
/// How often an end is looked for where the kernel has no process descriptors.
const SLICE: Duration = Duration::from_millis(20);
/// How long a killed process may take to be gone before it is left behind.
const GRACE: Duration = Duration::from_secs(2);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: Option<ExitStatus>,
}

impl Output {
    /// Facter takes the facts of an executable that fails or complains; so do
    /// we, but not in silence.
    pub(super) fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        if let Some(status) = self.status.filter(|status| !status.success()) {
            let problem = format!("failed with {status}; what it printed is used");
            troubles.push(Trouble::new(&problem, "run it by hand to see why"));
        }
        let said = String::from_utf8_lossy(&self.stderr);
        if let Some(first) = said.lines().map(str::trim).find(|line| !line.is_empty()) {
            let first: String = first
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            let problem = format!("complained: {first}");
            troubles.push(Trouble::new(&problem, "run it by hand to see more"));
        }
        troubles
    }
}

pub(super) fn run(path: &Path, timeout: Duration) -> Result<Output, Trouble> {
    let deadline = Instant::now() + timeout;
    let mut child = start(path).map_err(|error| {
        let problem = format!("cannot be run: {error}");
        Trouble::new(&problem, "check its first line and permissions")
    })?;
    let ended = follow(&mut child, deadline);
    let status = end(child);
    match ended {
        Ok(Followed::Ended { stdout, stderr }) => Ok(Output {
            stdout,
            stderr,
            status,
        }),
        Ok(Followed::TooLate) => {
            let problem = format!("was killed: it ran longer than {} s", timeout.as_secs_f32());
            Err(Trouble::new(
                &problem,
                "make it faster, or raise the time limit",
            ))
        }
        Ok(Followed::TooMuch) => Err(Trouble::new(
            "was killed: it printed more than 1 MiB",
            "print facts only",
        )),
        Err(error) => {
            let problem = format!("was killed: its output cannot be read: {error}");
            Err(Trouble::new(&problem, "try again"))
        }
    }
}

fn start(path: &Path) -> io::Result<Child> {
    let mut command = Command::new(path);
    command
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .env("LANG", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut tries = 5;
    loop {
        match command.spawn() {
            // Someone has it open for writing: it may just be being installed.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries > 0 => {
                tries -= 1;
                thread::sleep(SLICE);
            }
            started => return started,
        }
    }
}

enum Followed {
    Ended { stdout: Vec<u8>, stderr: Vec<u8> },
    TooLate,
    TooMuch,
}

/// Reads both outputs until the child has ended, and what is there then.
fn follow(child: &mut Child, deadline: Instant) -> io::Result<Followed> {
    let mut stdout = Stream::new(child.stdout.take().map(OwnedFd::from), SIZE_LIMIT)?;
    let mut stderr = Stream::new(child.stderr.take().map(OwnedFd::from), STDERR_LIMIT)?;
    let pid = Pid::from_child(child);
    let ending = pidfd_open(pid, PidfdFlags::empty()).ok();
    loop {
        // Look for the end first: all it printed is then in the pipes.
        let ended = has_ended(pid)?;
        stdout.read_what_is_there()?;
        stderr.read_what_is_there()?;
        if stdout.is_over() {
            return Ok(Followed::TooMuch);
        }
        if ended {
            return Ok(Followed::Ended {
                stdout: stdout.bytes,
                stderr: stderr.bytes,
            });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Followed::TooLate);
        }
        let open = [
            stdout.waiting(),
            stderr.waiting(),
            ending.as_ref().map(AsFd::as_fd),
        ];
        wait(
            &open,
            if ending.is_some() {
                left
            } else {
                left.min(SLICE)
            },
        )?;
    }
}

fn wait(files: &[Option<BorrowedFd<'_>>], limit: Duration) -> io::Result<()> {
    let files = files.iter().flatten();
    let mut files: Vec<PollFd<'_>> = files
        .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut files, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Looks without taking the end away, so that the group's number stays taken.
fn has_ended(pid: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

/// Kills what is left of the group, then takes the child's end.
fn end(mut child: Child) -> Option<ExitStatus> {
    let pid = Pid::from_child(&child);
    // The child is not waited for yet, so no other group can have its number.
    let _ = kill_process_group(pid, Signal::KILL);
    // It may have moved itself to another group.
    let _ = child.kill();
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
    // Stuck in the kernel (a dead disk or file server): a thread may wait.
    let _ = thread::Builder::new().spawn(move || child.wait());
    None
}

/// One output of the child, read without blocking.
struct Stream {
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    limit: u64,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>, limit: u64) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            let flags = rustix::fs::fcntl_getfl(pipe)? | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(pipe, flags)?;
        }
        Ok(Self {
            pipe,
            bytes: Vec::new(),
            limit,
        })
    }

    /// What is beyond the limit is read and dropped, so that a child that
    /// complains much does not wait for a reader.
    fn read_what_is_there(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        // Bounded, so that a child that never stops printing meets its deadline.
        for _ in 0..64 {
            let Some(pipe) = &self.pipe else {
                return Ok(());
            };
            match rustix::io::read(pipe, &mut buffer[..]) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.keep(&buffer[..count])?,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn keep(&mut self, more: &[u8]) -> io::Result<()> {
        let room = (self.limit + 1).saturating_sub(self.bytes.len() as u64);
        more.take(room).read_to_end(&mut self.bytes)?;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.bytes.len() as u64 > self.limit
    }

    fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }
}
