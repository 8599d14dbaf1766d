//! Errors for users: what failed, why, and what to do next.

use std::error::Error;

use crate::exit::Exit;
use crate::json_mode::{self, JsonError};
use crate::terminal::visible;

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    /// The causes, outermost first.
    causes: Vec<String>,
    hint: Option<String>,
    exit: Exit,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            exit: Exit::Error,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(message)
        }
    }

    /// Adds the error and all of its sources as causes.
    pub(crate) fn caused_by(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if self.causes.last() != Some(&text) {
                self.causes.push(text);
            }
            next = cause.source();
        }
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn hint_if(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    pub(crate) fn with_message(self, message: String) -> Self {
        Self { message, ..self }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the message with its causes in one line.
    pub(crate) fn cause_text(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        let causes: String = causes.collect();
        format!("{}{causes}", self.message)
    }

    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the message with its causes and its hint in one line.
    pub(crate) fn text(&self) -> String {
        let mut text = self.cause_text();
        if let Some(hint) = &self.hint {
            text.push_str(&format!(" ({hint})"));
        }
        text
    }

    /// Prints the failure to standard error. With `--json`, it is JSON.
    pub(crate) fn report(&self) -> Exit {
        if json_mode::is_on() {
            json_mode::error(&JsonError {
                message: &self.message,
                causes: &self.causes,
                hint: self.hint.as_deref(),
                exit_code: self.exit as u8,
            });
            return self.exit;
        }
        crate::waiting::before_output();
        let message = visible(&self.message);
        anstream::eprintln!("{}error:{} {message}", bold_red(), reset());
        for cause in &self.causes {
            note!("  because: {cause}");
        }
        if let Some(hint) = &self.hint {
            note!("\nhint: {hint}");
        }
        self.exit
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let failure = Self::new(error.to_string());
        match error.source() {
            Some(source) => failure.caused_by(source),
            None => failure,
        }
    }
}

fn bold_red() -> anstyle::Style {
    anstyle::AnsiColor::Red.on_default().bold()
}

fn reset() -> anstyle::Reset {
    anstyle::Reset
}
