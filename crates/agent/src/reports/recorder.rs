//! The recorder that a run writes its events to.

use std::sync::Arc;
use std::time::Instant;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{LogLine, ReportEvent, RunEnding, RunFailure, RunFinished};
use jiff::Timestamp;

use super::Spool;

/// Longer lines are truncated: a report is not the place for a core dump.
const LONGEST_LINE: usize = 16 << 10;

/// The report of an unfinished run. Any thread may write to it.
pub struct Recorder {
    spool: Arc<Spool>,
    run: NodeRunId,
    /// The start of the run on the monotonic clock, which nobody can set during the run.
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

    /// Returns the machine's clock time: for display only, never for durations or order.
    pub(crate) fn now(&self) -> Timestamp {
        self.spool.now()
    }

    /// Records an event. Never fails: the report mentions events that cannot be kept.
    pub fn record(&self, event: ReportEvent) {
        self.spool.append(self.run, event);
    }

    /// Records a log line.
    pub fn log(&self, level: &str, source: Option<String>, message: &str) {
        let message = shortened(message, LONGEST_LINE);
        self.record(ReportEvent::Log(LogLine {
            at: self.now(),
            level: level.to_owned(),
            source,
            message,
        }));
    }

    /// Records the end, and makes the report durable.
    pub(crate) fn finish(&self, ending: RunEnding, message: Option<String>) {
        self.finish_with(ending, message, None);
    }

    /// Records the end with the failure, and makes the report durable.
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
            tracing::warn!(run = %self.run, error = %error, "cannot write the spool; the report is in memory until a server has it");
        }
    }

    /// Returns whether any resource has failed so far.
    pub fn has_failures(&self) -> bool {
        self.spool.counts(self.run).failed > 0
    }
}

/// Returns the text, or its beginning and its full length.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut end = longest;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in total)", &text[..end], text.len())
}
