//! A run on a terminal: the state of every node, redrawn in place, with events scrolling above.

use std::time::Duration;

use bunraku_plan::run::Run;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::screen::{Progress, ScreenSize, screen};
use crate::waiting::TerminalInUse;

/// The redraw interval without events, because times still change.
pub(crate) const REDRAW: Duration = Duration::from_millis(150);

pub(crate) struct LiveView {
    lines: MultiProgress,
    block: ProgressBar,
    _terminal: TerminalInUse,
}

impl LiveView {
    pub(crate) fn new() -> Self {
        let lines = MultiProgress::new();
        let block = lines.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{msg}");
        block.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self {
            lines,
            block,
            _terminal: TerminalInUse::new(),
        }
    }

    /// Prints a permanent line.
    pub(crate) fn print_line(&self, line: &str) {
        // If the terminal is gone, nothing can be done.
        let _ = self.lines.println(crate::terminal::visible(line));
    }

    /// Shows the current state of the run.
    pub(crate) fn show(&mut self, run: &Run, progress: &Progress) {
        self.block
            .set_message(screen(run, progress, Timestamp::now(), size()));
        self.block.tick();
    }

    pub(crate) fn finish(self) {
        self.block.finish_and_clear();
    }
}

/// Returns the size of the terminal, or a common size if it is unknown.
fn size() -> ScreenSize {
    let text = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let text = text.filter(|text| text.ws_col > 0 && text.ws_row > 0);
    text.map_or(
        ScreenSize {
            columns: 80,
            rows: 24,
        },
        |text| ScreenSize {
            columns: usize::from(text.ws_col),
            rows: usize::from(text.ws_row),
        },
    )
}
