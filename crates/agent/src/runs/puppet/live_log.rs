//! Puppet's log, followed as it grows: JSON lines in a file, logged as they arrive.
//!
//! It is a file and not a pipe, so that Puppet continues undisturbed when this agent dies during
//! the run. Puppet versions that write another format produce no lines here; their lines come from
//! the report. The logged lines are remembered, because the report repeats them.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use bunraku_wire::api::ReportEvent;

use super::report::PuppetLog;
use crate::reports::Recorder;

/// The size of one read.
const PIECE: usize = 1 << 20;
/// Longer lines are ignored.
const LONGEST_LINE: usize = 1 << 20;
/// Output beyond this size is not logged. The report still has it.
const MOST_BYTES: u64 = 64 << 20;

pub(super) struct LiveLog {
    path: PathBuf,
    offset: u64,
    unfinished: Vec<u8>,
    reported: HashSet<u64>,
    hasher: RandomState,
    /// The last error that Puppet logged.
    last_error: Option<String>,
}

impl LiveLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            unfinished: Vec::new(),
            reported: HashSet::new(),
            hasher: RandomState::new(),
            last_error: None,
        }
    }

    /// Logs the lines that arrived since the last call.
    pub(super) fn record_new_lines(&mut self, recorder: &Recorder) {
        // The file does not exist before the first line.
        while let Some(piece) = self.next_piece().filter(|piece| !piece.is_empty()) {
            for byte in piece {
                if byte != b'\n' {
                    self.unfinished.push(byte);
                    self.unfinished.truncate(LONGEST_LINE);
                    continue;
                }
                let line = std::mem::take(&mut self.unfinished);
                if let Ok(log) = serde_json::from_slice::<PuppetLog>(&line) {
                    self.reported.insert(self.key(&log));
                    if log.is_error() && log.source.as_deref() != Some("Facter") {
                        self.last_error = Some(log.message.clone());
                    }
                    recorder.record(ReportEvent::Log(log.line(recorder.now())));
                }
            }
        }
    }

    fn next_piece(&mut self) -> Option<Vec<u8>> {
        if self.offset >= MOST_BYTES {
            return None;
        }
        let mut file = File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut piece = Vec::new();
        file.take(PIECE as u64).read_to_end(&mut piece).ok()?;
        self.offset += piece.len() as u64;
        Some(piece)
    }

    /// Returns whether this line of the report was already logged.
    pub(super) fn is_recorded(&self, log: &PuppetLog) -> bool {
        self.reported.contains(&self.key(log))
    }

    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.clone()
    }

    fn key(&self, log: &PuppetLog) -> u64 {
        self.hasher.hash_one((&log.time, &log.source, &log.message))
    }
}
