//! The output of an apply: results on stdout, progress on stderr.
//!
//! Unusual results are shown and the rest is counted: an unchanged resource has no line of its own.
//! The output is legible without colour.

mod explain;
mod json;
mod lines;
mod progress;
mod summary;

use std::error::Error;

use bunraku_engine::{Event, EventSink, Finished, Status};

pub(crate) use explain::explain;
pub(crate) use summary::{Told, summary};

use progress::Progress;

/// Shows events as they arrive.
pub(crate) struct View {
    json: bool,
    diffs: bool,
    progress: Option<Progress>,
}

impl View {
    pub(crate) fn new(json: bool, diffs: bool, terminal: bool) -> Self {
        Self {
            json,
            diffs,
            progress: (terminal && !json).then(Progress::new),
        }
    }

    /// Removes the progress display, so that only the summary remains.
    pub(crate) fn end(&self) {
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }

    fn finished(&self, finished: &Finished) {
        if finished.outcome.status == Status::Unchanged {
            return;
        }
        let text = lines::finished(finished, self.diffs);
        self.above(|| anstream::print!("{text}"));
    }

    /// Prints above the progress, if there is one.
    fn above(&self, print: impl FnOnce()) {
        match &self.progress {
            Some(progress) => progress.above(print),
            None => print(),
        }
    }
}

impl EventSink for View {
    fn tell(&self, event: Event<'_>) {
        if self.json {
            json::print(&event);
            return;
        }
        if let Some(progress) = &self.progress {
            progress.tell(&event);
        }
        match event {
            Event::Finished(finished) => self.finished(finished),
            Event::Output {
                reference, line, ..
            } => {
                self.above(|| {
                    anstream::eprintln!(
                        "{}{reference} | {line}",
                        lines::time(self.progress.is_some())
                    )
                });
            }
            Event::Retrying {
                reference,
                attempt,
                wait,
                why,
            } => {
                let wait = wait.as_secs_f64();
                let stamp = lines::time(self.progress.is_some());
                self.above(|| {
                    anstream::eprintln!(
                        "{stamp}{reference} attempt {attempt}: {why}; again in {wait} s"
                    )
                });
            }
            Event::Begun { .. } | Event::Started { .. } => {}
        }
    }
}

/// Prints an error with its causes and a hint.
pub(crate) fn print_error(error: &dyn Error, hint: Option<&str>) {
    let red = anstyle::Style::new()
        .bold()
        .fg_color(Some(anstyle::AnsiColor::Red.into()));
    anstream::eprintln!("{red}error{red:#}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        for line in error.to_string().lines() {
            anstream::eprintln!("  {line}");
        }
        cause = error.source();
    }
    if let Some(hint) = hint {
        anstream::eprintln!("\nhint: {hint}");
    }
}

/// Prints a note before a run of states.
pub(crate) fn note(note: &str) {
    anstream::eprintln!("note: {note}");
}

pub(crate) fn notes(notes: &[bunraku_states::Problem]) {
    for note in notes {
        anstream::eprintln!("note: {note}");
    }
}
