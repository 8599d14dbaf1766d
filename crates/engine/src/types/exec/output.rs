//! Output of a command: kept in part, and reported line by line as it arrives.

use std::ops::ControlFlow;

use bunraku_process::{BlockingChild, CapturePart, CapturedStream, LineSplitter, Stream};

use super::run::FinishedCommand;
use crate::ReadAccess;

/// The maximum length of a line. A longer one is reported in pieces of this length.
const LONGEST_LINE: usize = 16 << 10;

/// Both streams of a command.
pub(super) struct CommandOutput<'a> {
    stdout: OutputStream,
    stderr: OutputStream,
    teller: Option<ReadAccess<'a>>,
}

/// One stream: the kept part, and the incomplete line.
struct OutputStream {
    told_as: crate::Stream,
    kept: CapturedStream,
    lines: LineSplitter,
}

impl<'a> CommandOutput<'a> {
    pub(super) fn new(limit: usize, teller: Option<ReadAccess<'a>>) -> Self {
        Self {
            stdout: OutputStream::new(crate::Stream::Stdout, limit),
            stderr: OutputStream::new(crate::Stream::Stderr, limit),
            teller,
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let tap = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        tap.push(bytes, self.teller.as_ref());
    }

    /// Reads the rest from the pipes of a command that was killed.
    pub(super) fn read_rest(&mut self, child: &mut BlockingChild) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            child.read(stream, |bytes| {
                self.push(stream, bytes);
                ControlFlow::Continue(())
            });
        }
    }

    /// Returns the kept output. The last piece of a line without an end counts as a line.
    pub(super) fn finish(mut self) -> FinishedCommand {
        self.stdout.finish(self.teller.as_ref());
        self.stderr.finish(self.teller.as_ref());
        FinishedCommand {
            cut: self.stdout.kept.is_cut() || self.stderr.kept.is_cut(),
            stdout: self.stdout.kept.into_bytes(),
            stderr: self.stderr.kept.into_bytes(),
            ..FinishedCommand::default()
        }
    }
}

impl OutputStream {
    fn new(told_as: crate::Stream, limit: usize) -> Self {
        Self {
            told_as,
            kept: CapturedStream::new(CapturePart::First(limit)),
            lines: LineSplitter::new(LONGEST_LINE),
        }
    }

    fn push(&mut self, bytes: &[u8], teller: Option<&ReadAccess<'_>>) {
        let before = self.kept.len();
        self.kept.push(bytes);
        if let Some(teller) = teller {
            let kept = &bytes[..self.kept.len() - before];
            self.lines
                .push(kept, |line| teller.output(self.told_as, line));
        }
    }

    fn finish(&mut self, teller: Option<&ReadAccess<'_>>) {
        if let Some(teller) = teller {
            self.lines.finish(|line| teller.output(self.told_as, line));
        }
    }
}
