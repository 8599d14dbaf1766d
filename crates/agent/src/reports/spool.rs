//! The runs whose reports no server has yet, as one file each in one directory.
//!
//! The spool is bounded. When it exceeds its size, the oldest finished runs are compacted to their
//! beginning and their end. If that is not enough, the oldest of those are removed, and the next
//! report says how many.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bunraku_model::NodeRunId;
use bunraku_wire::api::{
    Cause, EventCounts, LogLine, NumberedEvent, ReportEvent, ReportReceipt, RunStarted,
};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::Recorder;
use super::event_file::EventFile;

/// The limits of the spool.
#[derive(Clone, Debug)]
pub struct SpoolOptions {
    /// The maximum number of bytes of events that wait for a server.
    pub most_bytes: u64,
    /// The maximum number of events that are kept in memory while the disk cannot be written.
    pub most_in_memory: usize,
    /// Whether resources without changes are reported, not only counted.
    pub report_unchanged: bool,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self {
            most_bytes: 64 << 20,
            most_in_memory: 10_000,
            report_unchanged: false,
        }
    }
}

/// The reason why the spool cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the spool {}", path.display())]
pub struct SpoolError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The source of the times in reports.
type WallClock = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// The spool of reports.
pub(crate) struct Spool {
    directory: PathBuf,
    options: SpoolOptions,
    /// The machine's clock, which may be set at any time. Its times are only for display.
    clock: WallClock,
    runs: Mutex<Runs>,
    /// Notified when there is something to send.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Runs {
    /// The files in the order in which their runs began. The key is the file's number in this
    /// spool.
    files: BTreeMap<u64, EventFile>,
    next_file: u64,
}

/// The result of [`Spool::next_batch`].
pub(super) struct Batch {
    pub(super) run: NodeRunId,
    pub(super) events: Vec<NumberedEvent>,
    /// The file to make durable before anything is sent.
    pub(super) file: Option<File>,
    /// The run is active, so more events may follow soon.
    pub(super) at_work: bool,
    /// The batch has as many events as allowed, so there may be more unsent events.
    pub(super) full: bool,
    /// The batch is only the beginning of a run of the schedule, for which nobody waits.
    pub(super) is_quiet_start: bool,
}

impl Spool {
    /// Opens the directory, with the reports that an earlier process left.
    pub(crate) fn open(directory: &Path, options: SpoolOptions) -> Result<Arc<Self>, SpoolError> {
        Self::open_with_clock(directory, options, Box::new(Timestamp::now))
    }

    pub(crate) fn open_with_clock(
        directory: &Path,
        options: SpoolOptions,
        clock: WallClock,
    ) -> Result<Arc<Self>, SpoolError> {
        let failed = |source| SpoolError {
            path: directory.to_owned(),
            source,
        };
        bunraku_files::create_private_directory(directory).map_err(failed)?;
        let mut found: Vec<(std::time::SystemTime, PathBuf, NodeRunId)> = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let run = name.to_str().and_then(|name| name.strip_suffix(".events"));
            if let Some(run) = run.and_then(|run| run.parse().ok()) {
                let modified = entry.metadata().and_then(|data| data.modified());
                found.push((modified.map_err(failed)?, entry.path(), run));
            }
        }
        found.sort();
        let mut runs = Runs::default();
        for (_, path, run) in found {
            let file = EventFile::open(&path, run).map_err(failed)?;
            if file.next == 0 {
                // The file has no complete line.
                let _ = std::fs::remove_file(&path);
                continue;
            }
            runs.add(file);
        }
        Ok(Arc::new(Self {
            directory: directory.to_owned(),
            options,
            clock,
            runs: Mutex::new(runs),
            changed: Notify::new(),
        }))
    }

    /// Returns the machine's clock time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Begins a run's report. `report_unchanged` has it name every resource, whatever the options
    /// say.
    pub(crate) fn begin(
        self: &Arc<Self>,
        run: NodeRunId,
        started: RunStarted,
        report_unchanged: bool,
    ) -> Arc<Recorder> {
        let path = self.directory.join(format!("{run}.events"));
        // If the same id is requested twice, the second report replaces the first.
        self.runs().remove(run);
        let report_unchanged = report_unchanged || self.options.report_unchanged;
        self.runs()
            .add(EventFile::create(&path, run, report_unchanged));
        let recorder = Arc::new(Recorder::new(Arc::clone(self), run));
        recorder.record(ReportEvent::Started(started));
        if let Some(dropped) = self.take_dropped() {
            recorder.record(ReportEvent::Log(LogLine {
                at: self.now(),
                level: "warning".to_owned(),
                source: None,
                message: format!(
                    "the spool was full; the reports of {dropped} earlier runs are lost"
                ),
            }));
        }
        recorder
    }

    /// Continues a report of an earlier process.
    pub(crate) fn resume(self: &Arc<Self>, run: NodeRunId) -> Arc<Recorder> {
        Arc::new(Recorder::new(Arc::clone(self), run))
    }

    /// Returns the runs that began and did not end, with their known details.
    pub(crate) fn unfinished(&self) -> Vec<(NodeRunId, Option<RunStarted>, EventCounts)> {
        let mut runs = self.runs();
        (runs.files.values_mut())
            .filter(|file| !file.finished)
            .map(|file| (file.run, file.started(), file.counts))
            .collect()
    }

    /// Returns whether servers have all reports.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs().files.is_empty()
    }

    /// Returns whether the spool has a report of this run.
    pub(crate) fn contains(&self, run: NodeRunId) -> bool {
        self.runs().files.values().any(|file| file.run == run)
    }

    pub(super) fn append(&self, run: NodeRunId, event: ReportEvent) {
        {
            let mut runs = self.runs();
            let room = self.options.most_bytes.saturating_sub(runs.bytes());
            if let Some(file) = runs.file(run) {
                file.append(event, room, self.options.most_in_memory);
            }
            if runs.bytes() > self.options.most_bytes {
                self.make_room(&mut runs, run);
            }
        }
        self.changed.notify_one();
    }

    pub(super) fn counts(&self, run: NodeRunId) -> EventCounts {
        self.runs()
            .file(run)
            .map_or(EventCounts::default(), |file| file.counts)
    }

    /// Makes the stored events of a run durable.
    pub(super) fn sync(&self, run: NodeRunId) -> io::Result<()> {
        let handle = self.runs().file(run).and_then(|file| {
            file.write_tail();
            file.handle()
        });
        match handle {
            Some(file) => file.sync_all(),
            None => Ok(()),
        }
    }

    fn make_room(&self, runs: &mut Runs, at_work: NodeRunId) {
        let candidates: Vec<u64> = (runs.files.iter())
            .filter(|(_, file)| file.finished && file.run != at_work)
            .map(|(key, _)| *key)
            .collect();
        for key in &candidates {
            if runs.bytes() <= self.options.most_bytes {
                return;
            }
            let Some(file) = runs.files.get_mut(key).filter(|file| !file.compacted) else {
                continue;
            };
            tracing::warn!(run = %file.run, "the spool is full: storing only the summary of a run");
            if let Err(error) = file.compact() {
                tracing::warn!(run = %file.run, error = %error, "cannot compact a report");
            }
        }
        for key in &candidates {
            if runs.bytes() <= self.options.most_bytes {
                return;
            }
            if let Some(mut file) = runs.files.remove(key) {
                tracing::error!(run = %file.run, "the spool is full: the report of a run is lost");
                file.remove();
                self.count_dropped();
            }
        }
    }

    fn dropped_path(&self) -> PathBuf {
        self.directory.join("dropped")
    }

    fn count_dropped(&self) {
        let before: u64 = (bunraku_files::read_text(&self.dropped_path()).ok())
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0);
        let text = (before + 1).to_string();
        if let Err(error) = bunraku_files::replace(&self.dropped_path(), text.as_bytes(), 0o600) {
            tracing::error!(error = %error, "cannot store the number of lost reports");
        }
    }

    fn take_dropped(&self) -> Option<u64> {
        let text = bunraku_files::read_text(&self.dropped_path()).ok()?;
        let _ = std::fs::remove_file(self.dropped_path());
        text.trim().parse().ok()
    }

    /// Returns a batch of the oldest run that a server lacks events of.
    pub(super) fn next_batch(&self, most: usize, most_bytes: usize) -> Option<Batch> {
        let mut runs = self.runs();
        let keys: Vec<u64> = runs.files.keys().copied().collect();
        for key in keys {
            let file = runs.files.get_mut(&key).filter(|file| file.has_unsent());
            let Some(file) = file else { continue };
            file.write_tail();
            match file.unsent(most, most_bytes) {
                Ok(events) if events.is_empty() && !file.finished => {}
                Ok(events) => {
                    return Some(Batch {
                        run: file.run,
                        full: events.len() >= most,
                        is_quiet_start: !file.finished && is_quiet_start(&events),
                        events,
                        file: file.handle(),
                        at_work: !file.finished,
                    });
                }
                Err(error) => {
                    tracing::error!(run = %file.run, error = %error, "cannot read a spooled report; setting it aside");
                    let aside = self.directory.join(format!("{}.damaged", file.run));
                    let path = self.directory.join(format!("{}.events", file.run));
                    let _ = std::fs::rename(path, aside);
                    runs.files.remove(&key);
                }
            }
        }
        None
    }

    /// Records the events that a server has. Returns true if it has all of them and the file is
    /// removed.
    pub(super) fn acknowledge(&self, run: NodeRunId, receipt: ReportReceipt) -> bool {
        let mut runs = self.runs();
        if receipt.finished {
            runs.remove(run);
            return true;
        }
        if let Some(file) = runs.file(run) {
            file.acknowledge(receipt.next);
        }
        false
    }

    /// Returns the end of a run under the number that a server expects. The server has events that
    /// this disk lost in a crash.
    pub(super) fn end_under(&self, run: NodeRunId, number: u64) -> Option<NumberedEvent> {
        let mut runs = self.runs();
        let file = runs.file(run)?;
        let event = file.end().ok().flatten()?.event;
        (file.finished && number >= file.next).then_some(NumberedEvent { number, event })
    }

    /// Replaces an event that no server accepts with an omission.
    pub(super) fn omit(&self, run: NodeRunId, number: u64, reason: &str) {
        let mut runs = self.runs();
        if let Some(file) = runs.file(run)
            && let Err(error) = file.replace_unsent(number, reason)
        {
            tracing::error!(%run, number, error = %error, "cannot drop an event");
        }
    }

    /// Sets aside a report that no server will ever accept, so that people can inspect it.
    pub(super) fn set_aside(&self, run: NodeRunId) {
        let path = self.directory.join(format!("{run}.events"));
        let aside = self.directory.join(format!("{run}.refused"));
        let _ = std::fs::rename(path, aside);
        self.runs().remove(run);
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_quiet_start(events: &[NumberedEvent]) -> bool {
    match events {
        [only] => matches!(&only.event, ReportEvent::Started(started)
            if started.causes == [Cause::Schedule]),
        _ => false,
    }
}

impl Runs {
    fn add(&mut self, file: EventFile) {
        self.files.insert(self.next_file, file);
        self.next_file += 1;
    }

    fn file(&mut self, run: NodeRunId) -> Option<&mut EventFile> {
        self.files.values_mut().rev().find(|file| file.run == run)
    }

    fn remove(&mut self, run: NodeRunId) {
        let key = self.files.iter().find(|(_, file)| file.run == run);
        if let Some(key) = key.map(|(key, _)| *key)
            && let Some(mut file) = self.files.remove(&key)
        {
            file.remove();
        }
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }
}

#[cfg(test)]
mod tests;
