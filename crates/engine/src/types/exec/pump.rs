//! Reading what a command prints while waiting for its end.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdout};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::run::Done;
use crate::{Cancellation, Sight, Stream};

/// A line without end is told in pieces of this length.
const LONGEST_LINE: usize = 16 << 10;

pub(super) enum Ended {
    Exited,
    Cancelled,
    Late,
}

/// Both streams of a command, and its end.
pub(super) struct Pump<'a> {
    exit: OwnedFd,
    stdout: Tap<ChildStdout>,
    stderr: Tap<ChildStderr>,
    teller: Option<Sight<'a>>,
}

/// One stream: what is kept of it, and the line in the making.
struct Tap<R> {
    from: Option<R>,
    stream: Stream,
    kept: Vec<u8>,
    line: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        child: &mut Child,
        limit: usize,
        teller: Option<Sight<'a>>,
    ) -> io::Result<Self> {
        let exit = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        Ok(Self {
            exit,
            stdout: Tap::new(child.stdout.take(), Stream::Stdout, limit)?,
            stderr: Tap::new(child.stderr.take(), Stream::Stderr, limit)?,
            teller,
        })
    }

    /// Reads until the command itself has ended: not until its pipes are
    /// closed, as a process that it left behind may hold them for ever.
    pub(super) fn until_exit(
        &mut self,
        cancellation: &Cancellation,
        deadline: Option<Instant>,
    ) -> io::Result<Ended> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Ended::Late);
            }
            let (exited, cancelled) = self.wait(cancellation, left)?;
            self.drain();
            if exited {
                return Ok(Ended::Exited);
            }
            if cancelled {
                return Ok(Ended::Cancelled);
            }
        }
    }

    fn wait(
        &self,
        cancellation: &Cancellation,
        left: Option<std::time::Duration>,
    ) -> io::Result<(bool, bool)> {
        let cancel = cancellation.readable();
        let mut files = vec![
            PollFd::new(&self.exit, PollFlags::IN),
            PollFd::new(&cancel, PollFlags::IN),
        ];
        files.extend(
            self.stdout
                .from
                .as_ref()
                .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
        );
        files.extend(
            self.stderr
                .from
                .as_ref()
                .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
        );
        // Too long for the kernel's type means: as good as no deadline.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        Ok((
            !files[0].revents().is_empty(),
            !files[1].revents().is_empty(),
        ))
    }

    fn drain(&mut self) {
        self.stdout.drain(self.teller.as_ref());
        self.stderr.drain(self.teller.as_ref());
    }

    /// What was kept. The last piece of a line without an end counts as one.
    pub(super) fn finish(mut self) -> Done {
        self.drain();
        self.stdout.flush(self.teller.as_ref());
        self.stderr.flush(self.teller.as_ref());
        Done {
            cut: self.stdout.cut || self.stderr.cut,
            stdout: self.stdout.kept,
            stderr: self.stderr.kept,
            ..Done::default()
        }
    }
}

impl<R: Read + AsFd> Tap<R> {
    fn new(from: Option<R>, stream: Stream, limit: usize) -> io::Result<Self> {
        if let Some(pipe) = &from {
            let flags = rustix::fs::fcntl_getfl(pipe)?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?;
        }
        Ok(Self {
            from,
            stream,
            kept: Vec::new(),
            line: Vec::new(),
            limit,
            cut: false,
        })
    }

    /// Reads what is there, and no more than a share of it: a command that
    /// prints without end must not keep its deadline from being seen.
    fn drain(&mut self, teller: Option<&Sight<'_>>) {
        let mut buffer = [0; 16 << 10];
        for _ in 0..64 {
            let Some(pipe) = &mut self.from else {
                return;
            };
            match pipe.read(&mut buffer) {
                Ok(0) => self.from = None,
                Ok(count) => self.take(&buffer[..count], teller),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.from = None,
            }
        }
    }

    fn take(&mut self, bytes: &[u8], teller: Option<&Sight<'_>>) {
        let room = self.limit - self.kept.len();
        let kept = &bytes[..bytes.len().min(room)];
        self.kept.extend_from_slice(kept);
        self.cut |= kept.len() < bytes.len();
        if teller.is_none() || kept.is_empty() {
            return;
        }
        for piece in kept.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LONGEST_LINE {
                self.flush(teller);
            }
        }
    }

    fn flush(&mut self, teller: Option<&Sight<'_>>) {
        if let Some(teller) = teller.filter(|_| !self.line.is_empty()) {
            let line = String::from_utf8_lossy(&self.line);
            teller.output(self.stream, line.trim_end_matches(['\n', '\r']));
        }
        self.line.clear();
    }
}
