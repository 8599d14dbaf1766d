//! The events of one run, one JSON document per line.
//!
//! Events that cannot be written stay in memory, up to a limit. Beyond it, events are counted as
//! omitted, and the file or the report says so. Numbers have no gaps: an omission takes as many
//! numbers as the events that it replaces.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_model::NodeRunId;
use bunraku_wire::api::{
    EventCounts, EventStatus, NumberedEvent, OmittedEvents, ReportEvent, RunStarted,
};

/// The events of one run.
pub(super) struct EventFile {
    pub(super) run: NodeRunId,
    path: PathBuf,
    file: Option<File>,
    /// The number of bytes that form complete lines.
    pub(super) size: u64,
    /// The number of the next event.
    pub(super) next: u64,
    pub(super) finished: bool,
    /// Only the beginning, the end and an omission are left.
    pub(super) compacted: bool,
    pub(super) counts: EventCounts,
    /// Events that follow those in the file.
    tail: VecDeque<NumberedEvent>,
    /// A server has all events before this number.
    pub(super) acknowledged: u64,
    /// The position in the file from which to continue reading.
    read_at: u64,
    /// A warning about the failing disk was logged.
    warned: bool,
    /// Whether resources without changes are events, or only counted.
    report_unchanged: bool,
}

/// Returns whether an event must be kept even when there is no room.
fn is_essential(event: &ReportEvent) -> bool {
    match event {
        ReportEvent::Started(_) | ReportEvent::Finished(_) | ReportEvent::Omitted(_) => true,
        ReportEvent::Resource(resource) => !matches!(
            resource.status,
            EventStatus::Unchanged | EventStatus::Skipped
        ),
        ReportEvent::Log(_) => false,
    }
}

impl EventFile {
    pub(super) fn create(path: &Path, run: NodeRunId, report_unchanged: bool) -> Self {
        Self {
            run,
            path: path.to_owned(),
            file: None,
            size: 0,
            next: 0,
            finished: false,
            compacted: false,
            counts: EventCounts::default(),
            tail: VecDeque::new(),
            acknowledged: 0,
            read_at: 0,
            warned: false,
            report_unchanged,
        }
    }

    /// Opens the file that an earlier process left. Removes a line that a crash truncated.
    pub(super) fn open(path: &Path, run: NodeRunId) -> io::Result<Self> {
        let mut this = Self::create(path, run, false);
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        let mut omissions = 0;
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            if length == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let Ok(event) = serde_json::from_slice::<NumberedEvent>(&line) else {
                break;
            };
            omissions += usize::from(matches!(event.event, ReportEvent::Omitted(_)));
            this.note(&event);
            this.size += length as u64;
        }
        let file = append_to(path)?;
        file.set_len(this.size)?;
        this.file = Some(file);
        this.compacted = this.finished && omissions == 1 && this.size < 8 << 10;
        Ok(this)
    }

    /// Appends an event. `room` is the number of bytes available for events that are not essential.
    pub(super) fn append(&mut self, event: ReportEvent, room: u64, most_in_memory: usize) {
        if let ReportEvent::Resource(resource) = &event
            && !self.report_unchanged
            && resource.is_uneventful()
        {
            self.counts.note(resource);
            return;
        }
        let event = NumberedEvent {
            number: self.next,
            event,
        };
        self.note(&event);
        if !is_essential(&event.event) && (room == 0 || self.tail.len() >= most_in_memory) {
            self.omit(event.number, "not enough space on the node");
            return;
        }
        let beyond = self.tail.len() >= most_in_memory && !is_kept_always(&event.event);
        if beyond {
            self.omit(event.number, "not enough space on the node");
            return;
        }
        self.tail.push_back(event);
        self.write_tail();
    }

    /// Writes as many of the events in memory as possible.
    pub(super) fn write_tail(&mut self) {
        while let Some(event) = self.tail.front() {
            let mut line = serde_json::to_vec(event).expect("events are plain data");
            line.push(b'\n');
            if let Err(error) = self.write(&line) {
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(run = %self.run, error = %error, "cannot write the spool; keeping events in memory");
                }
                return;
            }
            self.warned = false;
            self.tail.pop_front();
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let size = self.size;
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = append_to(&self.path)?;
                // Events are made durable later, but the name that leads to them now.
                bunraku_files::sync_directory_of(&self.path)?;
                self.file.insert(file)
            }
        };
        if let Err(error) = file.write_all(line) {
            // The file may contain a part of the line. The next line must not follow it.
            let _ = file.set_len(size);
            return Err(error);
        }
        self.size += line.len() as u64;
        Ok(())
    }

    fn note(&mut self, event: &NumberedEvent) {
        self.next = event.number + event.event.width();
        match &event.event {
            ReportEvent::Resource(resource) => self.counts.note(resource),
            ReportEvent::Finished(_) => self.finished = true,
            _ => {}
        }
    }

    fn omit(&mut self, number: u64, reason: &str) {
        if let Some(NumberedEvent {
            event: ReportEvent::Omitted(omitted),
            ..
        }) = self.tail.back_mut()
        {
            omitted.count += 1;
            return;
        }
        let omitted = OmittedEvents {
            count: 1,
            reason: reason.to_owned(),
        };
        self.tail.push_back(NumberedEvent {
            number,
            event: ReportEvent::Omitted(omitted),
        });
    }

    /// Returns a handle for making the file's content durable.
    pub(super) fn handle(&self) -> Option<File> {
        self.file.as_ref().and_then(|file| file.try_clone().ok())
    }

    /// Returns whether a server lacks some of the events.
    pub(super) fn has_unsent(&self) -> bool {
        self.acknowledged < self.next || self.finished
    }

    /// Returns some events that a server lacks, in order.
    pub(super) fn unsent(
        &mut self,
        most: usize,
        most_bytes: usize,
    ) -> io::Result<Vec<NumberedEvent>> {
        let mut events = Vec::new();
        let mut bytes = 0;
        if self.read_at < self.size {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.read_at))?;
            let mut reader = BufReader::new(file.take(self.size - self.read_at));
            let mut line = String::new();
            while events.len() < most && bytes < most_bytes {
                line.clear();
                let length = reader.read_line(&mut line)?;
                if length == 0 {
                    break;
                }
                let event: NumberedEvent = serde_json::from_str(&line)?;
                if event.number + event.event.width() <= self.acknowledged {
                    self.read_at += length as u64;
                    continue;
                }
                if !events.is_empty() && bytes + length > most_bytes {
                    return Ok(events);
                }
                bytes += length;
                events.push(event);
            }
            if events.len() >= most || bytes >= most_bytes {
                return Ok(events);
            }
        }
        let known = events.last().map_or(self.acknowledged, end_of);
        let rest = self.tail.iter().filter(|event| end_of(event) > known);
        events.extend(rest.take(most.saturating_sub(events.len())).cloned());
        Ok(events)
    }

    /// Records that a server has everything before `next`.
    pub(super) fn acknowledge(&mut self, next: u64) {
        if next < self.acknowledged {
            // The server has fewer events than it acknowledged before: start over.
            self.read_at = 0;
        }
        self.acknowledged = next;
    }

    /// Returns the first event of a run, from its file or from memory.
    pub(super) fn started(&mut self) -> Option<RunStarted> {
        let event = self.first()?;
        match event.event {
            ReportEvent::Started(started) => Some(started),
            _ => None,
        }
    }

    fn first(&self) -> Option<NumberedEvent> {
        if self.size == 0 {
            return self.tail.front().cloned();
        }
        let mut line = String::new();
        let mut reader = BufReader::new(File::open(&self.path).ok()?);
        reader.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Returns the last event, if it is the end of the run.
    pub(super) fn end(&self) -> io::Result<Option<NumberedEvent>> {
        let is_end = |event: &NumberedEvent| matches!(event.event, ReportEvent::Finished(_));
        if let Some(event) = self.tail.back() {
            return Ok(Some(event.clone()).filter(is_end));
        }
        let mut last = String::new();
        for line in BufReader::new(File::open(&self.path)?).lines() {
            last = line?;
        }
        let event: NumberedEvent = serde_json::from_str(&last)?;
        Ok(Some(event).filter(is_end))
    }

    /// Keeps the beginning and the end of a finished run, and records what was removed.
    pub(super) fn compact(&mut self) -> io::Result<()> {
        self.compacted = true;
        let (Some(first), Some(end)) = (self.first(), self.end()?) else {
            return Ok(());
        };
        let between = end.number - (first.number + 1);
        let mut text = Vec::new();
        let omitted = NumberedEvent {
            number: first.number + 1,
            event: ReportEvent::Omitted(OmittedEvents {
                count: between,
                reason: "the node's spool was full; only the summary was stored".to_owned(),
            }),
        };
        let kept = [Some(first), (between > 0).then_some(omitted), Some(end)];
        for event in kept.into_iter().flatten() {
            serde_json::to_writer(&mut text, &event)?;
            text.push(b'\n');
        }
        if text.len() as u64 >= self.size && self.tail.is_empty() {
            return Ok(());
        }
        bunraku_files::replace(&self.path, &text, 0o600)?;
        self.file = Some(append_to(&self.path)?);
        self.tail.clear();
        self.size = text.len() as u64;
        self.read_at = 0;
        Ok(())
    }

    pub(super) fn remove(&mut self) {
        self.file = None;
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), error = %error, "cannot remove a delivered report");
        }
    }

    /// Replaces an event that no server accepts with an omission.
    pub(super) fn replace_unsent(&mut self, number: u64, reason: &str) -> io::Result<()> {
        let mut text = Vec::new();
        let all = (BufReader::new(File::open(&self.path)?).lines())
            .map(|line| Ok(serde_json::from_str(&line?)?))
            .collect::<io::Result<Vec<NumberedEvent>>>()?;
        let replace = |event: &mut NumberedEvent| {
            if event.number == number {
                event.event = ReportEvent::Omitted(OmittedEvents {
                    count: event.event.width(),
                    reason: reason.to_owned(),
                });
            }
        };
        for mut event in all {
            replace(&mut event);
            serde_json::to_writer(&mut text, &event)?;
            text.push(b'\n');
        }
        self.tail.iter_mut().for_each(replace);
        bunraku_files::replace(&self.path, &text, 0o600)?;
        self.file = Some(append_to(&self.path)?);
        self.size = text.len() as u64;
        self.read_at = 0;
        Ok(())
    }
}

/// Returns whether an event is one that a report is meaningless without.
fn is_kept_always(event: &ReportEvent) -> bool {
    matches!(event, ReportEvent::Started(_) | ReportEvent::Finished(_))
}

pub(super) fn end_of(event: &NumberedEvent) -> u64 {
    event.number + event.event.width()
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}
