//! The destination of an apply's output: this process's own, and optionally the log of a task.
//!
//! Rule: nothing that comes from a catalog, a file or a command controls the terminal.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;

use crate::exit::Exit;
use crate::json_mode::{self, JsonError};
use crate::task_log::TaskLog;
use crate::terminal::visible_with_colours;

/// Prints to stdout and stderr. Clones share the log.
#[derive(Clone, Default)]
pub(crate) struct Printer {
    log: Option<TaskLog>,
}

impl Printer {
    /// Creates a printer that also keeps everything in a log, without colours.
    pub(crate) fn with_log(log: TaskLog) -> Self {
        Self { log: Some(log) }
    }

    /// Returns whether progress can be shown. A log would contain every frame of it.
    pub(super) fn shows_progress(&self) -> bool {
        self.log.is_none() && io::stderr().is_terminal()
    }

    /// Prints to stdout. A reader that went away is not an error of the run, which continues.
    pub(super) fn text(&self, text: &str) {
        let _ = self.result(text);
    }

    /// Prints to stdout, if the reader is still there.
    pub(super) fn result(&self, text: &str) -> io::Result<()> {
        self.append_to_log(text);
        json_mode::has_data();
        let mut out = anstream::stdout().lock();
        out.write_all(visible_with_colours(text).as_bytes())?;
        out.flush()
    }

    /// Prints a line to stderr.
    pub(crate) fn error_line(&self, text: &str) {
        self.append_to_log(text);
        self.append_to_log("\n");
        if json_mode::is_on() {
            return json_mode::message(&strip_str(text).to_string());
        }
        let shown = visible_with_colours(text);
        let _ = writeln!(anstream::stderr().lock(), "{shown}");
    }

    /// Prints an error with its causes and a hint to stderr. With `--json`, it is JSON.
    pub(crate) fn error(&self, error: &dyn Error, hint: Option<&str>, exit: Exit) {
        if !json_mode::is_on() {
            return self.error_line(&super::error_text(error, hint));
        }
        self.append_to_log(&format!("{}\n", super::error_text(error, hint)));
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        json_mode::error(&JsonError {
            message: &error.to_string(),
            causes: &causes,
            hint,
            exit_code: exit as u8,
        });
    }

    fn append_to_log(&self, text: &str) {
        if let Some(log) = &self.log {
            log.add(strip_str(text).to_string().as_bytes());
        }
    }
}
