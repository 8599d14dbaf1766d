//! A running child, for code that has its own thread.
//!
//! The child's pipes, its end, a request to stop and a deadline are waited for together. So nothing
//! here waits longer than the deadline, not even when a process that left the group keeps the
//! output open.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::Stream;
use crate::group::ProcessGroup;
use crate::program::Program;
use crate::work::WorkRecord;

/// The time for which a program file may be busy because it is open for writing: it may be in the
/// process of installation, or a fork in another thread may hold the new file for a moment.
const BUSY: Duration = Duration::from_secs(5);
/// The time that a killed process may take to end before it is abandoned.
const STUCK: Duration = Duration::from_secs(2);
/// The maximum number of buffers that one read takes: a child that prints endlessly must not hide
/// its deadline.
const SHARE: usize = 64;
const BUFFER: usize = 16 << 10;

/// A running child. Dropping it kills its whole group.
pub struct BlockingChild {
    /// Empty once the child has been reaped.
    child: Option<std::process::Child>,
    exit: OwnedFd,
    group: ProcessGroup,
    background_may_stay: bool,
    record: Option<WorkRecord>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Input that is not written to the child yet.
    input: Vec<u8>,
}

/// The limits of a wait.
#[derive(Clone, Copy, Default)]
pub struct WaitLimits<'a> {
    pub deadline: Option<Instant>,
    /// Becomes readable when the wait should end early.
    pub cancelled: Option<BorrowedFd<'a>>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitEnd {
    /// A pipe is ready, or nothing in particular happened.
    Ready,
    /// The child has ended. All its output is in its pipes.
    Ended,
    Cancelled,
    Late,
}

/// The reason why following a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowEnd {
    Ended,
    Cancelled,
    Late,
    /// The sink did not want more output.
    Stopped,
}

impl Program {
    /// Starts the program, for code that may block.
    pub fn start_blocking(mut self) -> io::Result<BlockingChild> {
        let (own_group, background_may_stay) = (self.own_group, self.background_may_stay);
        let input = self.input.take();
        let record = self.begin_record();
        let mut child = match spawn(&mut self.command()) {
            Ok(child) => child,
            Err(error) => {
                if let Some(record) = record {
                    record.finished();
                }
                return Err(error);
            }
        };
        if let Some(record) = &record {
            record.started(child.id());
        }
        let group = if own_group {
            ProcessGroup::of_leader(child.id())
        } else {
            ProcessGroup::only(child.id())
        };
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let (Some(group), Ok(exit)) = (group, exit) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("the kernel has no process descriptors"));
        };
        let child = BlockingChild {
            exit,
            group,
            background_may_stay,
            record,
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            input: input.unwrap_or_default(),
            child: Some(child),
        };
        let pipes = [
            child.stdin.as_ref().map(AsFd::as_fd),
            child.stdout.as_ref().map(AsFd::as_fd),
            child.stderr.as_ref().map(AsFd::as_fd),
        ];
        for pipe in pipes.into_iter().flatten() {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        Ok(child)
    }
}

fn spawn(command: &mut std::process::Command) -> io::Result<std::process::Child> {
    let deadline = Instant::now() + BUSY;
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

impl BlockingChild {
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, std::process::Child::id)
    }

    /// Waits until data can be read or written, or the wait is over.
    pub fn wait(&self, until: WaitLimits<'_>) -> io::Result<WaitEnd> {
        let left =
            (until.deadline).map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(WaitEnd::Late);
        }
        let reading = PollFlags::IN;
        let mut files = vec![PollFd::new(&self.exit, reading)];
        let watched = [
            (until.cancelled, reading),
            (self.stdout.as_ref().map(AsFd::as_fd), reading),
            (self.stderr.as_ref().map(AsFd::as_fd), reading),
            (self.waiting_input(), PollFlags::OUT),
        ];
        for (file, flags) in watched {
            files.extend(file.map(|file| PollFd::from_borrowed_fd(file, flags)));
        }
        // A timeout that is too long for the kernel's type is practically no deadline.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(WaitEnd::Ready),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |index: usize| !files[index].revents().is_empty();
        Ok(
            match (is_ready(0), until.cancelled.is_some() && is_ready(1)) {
                (true, _) => WaitEnd::Ended,
                (false, true) => WaitEnd::Cancelled,
                (false, false) => WaitEnd::Ready,
            },
        )
    }

    fn waiting_input(&self) -> Option<BorrowedFd<'_>> {
        let stdin = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        stdin.map(AsFd::as_fd)
    }

    /// Takes the child's input and output as blocking pipes, for code that communicates with it
    /// from several threads.
    pub fn take_blocking_pipes(&mut self) -> io::Result<(ChildStdin, ChildStdout)> {
        let (Some(stdin), Some(stdout)) = (self.stdin.take(), self.stdout.take()) else {
            return Err(io::Error::other("its input and output are not pipes"));
        };
        for pipe in [stdin.as_fd(), stdout.as_fd()] {
            fcntl_setfl(pipe, fcntl_getfl(pipe)?.difference(OFlags::NONBLOCK))?;
        }
        Ok((stdin, stdout))
    }

    /// Adds to the input that is written to the child while it is waited for.
    pub fn push_input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    pub fn close_input(&mut self) {
        self.stdin = None;
        self.input.clear();
    }

    /// Writes as much input as the child can take now. A child that closed its input or has ended
    /// gets no more. Its output shows which of the two happened.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(stdin) = self.stdin.as_mut().filter(|_| !self.input.is_empty()) else {
            return Ok(());
        };
        match stdin.write(&self.input) {
            Ok(count) => {
                self.input.drain(..count);
                Ok(())
            }
            Err(error) if would_wait(&error) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.close_input();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads available output, up to a limit. Returns whether more can follow.
    pub fn read(&mut self, stream: Stream, mut sink: impl FnMut(&[u8]) -> ControlFlow<()>) -> bool {
        match stream {
            Stream::Stdout => drain(&mut self.stdout, &mut sink),
            Stream::Stderr => drain(&mut self.stderr, &mut sink),
        }
    }

    /// Feeds the child's input and passes its output on until the child has ended. It does not wait
    /// until the pipes are closed, because a background process may hold them open forever.
    pub fn follow(
        &mut self,
        until: WaitLimits<'_>,
        mut sink: impl FnMut(Stream, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<FollowEnd> {
        loop {
            if self.input.is_empty() {
                self.stdin = None;
            }
            let woken = self.wait(until)?;
            let mut stopped = false;
            for stream in [Stream::Stdout, Stream::Stderr] {
                self.read(stream, |bytes| {
                    let flow = sink(stream, bytes);
                    stopped |= flow.is_break();
                    flow
                });
            }
            match woken {
                _ if stopped => return Ok(FollowEnd::Stopped),
                WaitEnd::Ended => return Ok(FollowEnd::Ended),
                WaitEnd::Cancelled => return Ok(FollowEnd::Cancelled),
                WaitEnd::Late => return Ok(FollowEnd::Late),
                WaitEnd::Ready => self.write()?,
            }
        }
    }

    /// Ends the group: asks it to end, waits for `grace`, and then kills it.
    ///
    /// Returns nothing for a process that is stuck in the kernel (a failed disk or file server).
    pub fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.group.signal(Signal::TERM);
        self.wait_for_exit(grace);
        self.kill_and_reap()
    }

    /// Reaps a child that has ended, or kills one that has not. Kills the members of its group too,
    /// unless background processes may stay.
    pub fn finish(&mut self) -> Option<ExitStatus> {
        if self.background_may_stay && self.wait_for_exit(Duration::ZERO) {
            let status = self.child.take()?.wait().ok();
            if let Some(record) = self.record.take() {
                record.finished();
            }
            return status;
        }
        self.kill_and_reap()
    }

    /// Waits only for the child's end. Returns whether it has ended.
    pub fn wait_for_exit(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut files = [PollFd::new(&self.exit, PollFlags::IN)];
            match poll(&mut files, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(count) => return count > 0,
                Err(_) => return false,
            }
        }
    }

    fn kill_and_reap(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        // The leader is not reaped yet, so its process id cannot refer to another group.
        self.group.kill();
        let has_ended = self.wait_for_exit(STUCK);
        if has_ended && let Some(record) = self.record.take() {
            record.kill_rest();
        }
        if has_ended {
            return child.wait().ok();
        }
        let _ = thread::Builder::new().spawn(move || child.wait());
        None
    }
}

impl Drop for BlockingChild {
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

fn drain(pipe: &mut Option<impl Read>, sink: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> bool {
    let mut buffer = [0; BUFFER];
    for _ in 0..SHARE {
        let Some(open) = pipe else {
            return false;
        };
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) => {
                if sink(&buffer[..count]).is_break() {
                    return true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => *pipe = None,
        }
    }
    true
}

fn would_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
