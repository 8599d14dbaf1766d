//! Where a run writes down what happens.

use std::sync::Arc;
use std::time::Instant;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{LogLine, ReportEvent, RunEnding, RunFailure, RunFinished};
use jiff::Timestamp;

use super::Spool;

/// A line longer than this is cut: a report is no place for a core dump.
const LONGEST_LINE: usize = 16 << 10;

/// The report of one run in the making. Any thread may write to it.
pub struct Recorder {
    spool: Arc<Spool>,
    run: NodeRunId,
    /// Clocks may be set meanwhile; this one cannot.
    begun: Instant,
}

impl Recorder {
    pub(super) fn new(spool: Arc<Spool>, run: NodeRunId) -> Self {
        Self {
            spool,
            run,
            begun: Instant::now(),
        }
    }

    /// What the machine's clock says: for times that are shown, never for durations or order.
    pub(crate) fn now(&self) -> Timestamp {
        self.spool.now()
    }

    /// Writes an event down. Never fails: what cannot be kept is said in the report.
    pub fn record(&self, event: ReportEvent) {
        self.spool.append(self.run, event);
    }

    /// Writes a line down.
    pub fn log(&self, level: &str, source: Option<String>, message: &str) {
        let message = shortened(message, LONGEST_LINE);
        self.record(ReportEvent::Log(LogLine {
            at: self.now(),
            level: level.to_owned(),
            source,
            message,
        }));
    }

    /// Writes the end down, and makes the report durable.
    pub(crate) fn finish(&self, ending: RunEnding, message: Option<String>) {
        self.finish_with(ending, message, None);
    }

    /// The same, with what went wrong.
    pub(crate) fn finish_with(
        &self,
        ending: RunEnding,
        message: Option<String>,
        failure: Option<RunFailure>,
    ) {
        let counts = self.spool.counts(self.run);
        self.record(ReportEvent::Finished(RunFinished {
            at: self.now(),
            ending,
            message,
            failure,
            duration_seconds: self.begun.elapsed().as_secs_f64(),
            unchanged: counts.unchanged,
            changed: counts.changed,
            pending: counts.pending,
            failed: counts.failed,
            skipped: counts.skipped,
            corrective: counts.corrective,
        }));
        if let Err(error) = self.spool.sync(self.run) {
            tracing::warn!(run = %self.run, error = %error, "the report is in memory only until a server has it");
        }
    }

    /// Whether resources failed so far.
    pub fn has_failures(&self) -> bool {
        self.spool.counts(self.run).failed > 0
    }
}

/// The text, or its beginning and how much there was.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut end = longest;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in all)", &text[..end], text.len())
}
