//! The output of an apply: results on stdout, progress on stderr.
//!
//! Unusual results are shown and the rest is counted: an unchanged resource has no line of its own.
//! The output is legible without colour.

mod explain;
mod json;
mod lines;
mod printer;
mod progress;
mod summary;

use std::error::Error;

use bunraku_engine::{Event, EventSink, ResourceResult, Status};

use crate::exit::Exit;

pub(crate) use explain::explain;
pub(crate) use printer::Printer;
pub(crate) use summary::{SummarySubject, summary};

use progress::Progress;

/// Shows events as they arrive.
pub(crate) struct View {
    json: bool,
    diffs: bool,
    progress: Option<Progress>,
    printer: Printer,
}

impl View {
    pub(crate) fn new(json: bool, diffs: bool, printer: Printer) -> Self {
        Self {
            json,
            diffs,
            progress: (printer.shows_progress() && !json).then(Progress::new),
            printer,
        }
    }

    /// Removes the progress display, so that only the summary remains.
    pub(crate) fn end(&self) {
        if let Some(progress) = &self.progress {
            progress.end();
        }
    }

    fn finished(&self, finished: &ResourceResult) {
        if finished.outcome.status == Status::Unchanged {
            return;
        }
        let text = lines::finished(finished, self.diffs);
        self.above(|| self.printer.text(&text));
    }

    /// Prints a line with the time to stderr.
    fn line(&self, text: &str) {
        let stamp = lines::time(self.progress.is_some());
        self.above(|| self.printer.error_line(&format!("{stamp}{text}")));
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
    fn emit(&self, event: Event<'_>) {
        if self.json {
            self.printer.text(&json::line(&event));
            return;
        }
        if let Some(progress) = &self.progress {
            progress.update(&event);
        }
        match event {
            Event::Finished(finished) => self.finished(finished),
            Event::Output {
                reference, line, ..
            } => self.line(&format!("{reference} | {line}")),
            Event::Retrying(retry) => self.line(&lines::retrying(&retry)),
            Event::Begun { .. } | Event::Started { .. } => {}
        }
    }
}

/// Formats an error with its causes and a hint.
fn error_text(error: &dyn Error, hint: Option<&str>) -> String {
    let red = anstyle::Style::new()
        .bold()
        .fg_color(Some(anstyle::AnsiColor::Red.into()));
    let mut text = format!("{red}error{red:#}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        for line in error.to_string().lines() {
            text.push_str(&format!("\n  {line}"));
        }
        cause = error.source();
    }
    if let Some(hint) = hint {
        text.push_str(&format!("\n\nhint: {hint}"));
    }
    text
}

/// Prints an error with its causes and a hint.
pub(crate) fn print_error(error: &dyn Error, hint: Option<&str>) {
    Printer::default().error(error, hint, Exit::Error);
}
