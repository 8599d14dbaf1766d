//! The output of `--json`, for every command.
//!
//! Standard output has only JSON: the data of the command or, if it has none, the messages that
//! people would see. Standard error has one line of JSON for each message, and for the error.
//! `docs/json.md` describes this for users.
//!
//! This is state of the process, like standard output itself: what prints does not have to know
//! which command runs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::json;

use crate::terminal::is_hidden;

static IS_ON: AtomicBool = AtomicBool::new(false);
static HAS_DATA: AtomicBool = AtomicBool::new(false);
static MESSAGES: Mutex<Messages> = Mutex::new(Messages {
    messages: Vec::new(),
    hint: None,
});

/// The most messages that are kept for a command without data.
const MOST: usize = 1000;

/// The messages of a command that printed no data.
#[derive(Serialize)]
struct Messages {
    messages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// An error as JSON.
#[derive(Serialize)]
pub(crate) struct JsonError<'a> {
    pub(crate) message: &'a str,
    pub(crate) causes: &'a [String],
    pub(crate) hint: Option<&'a str>,
    pub(crate) exit_code: u8,
}

pub(crate) fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Remembers that standard output has data, so that no messages are added to it.
pub(crate) fn has_data() {
    HAS_DATA.store(true, Ordering::Relaxed);
}

/// Prints a message for people to standard error, and keeps it.
pub(crate) fn message(text: &str) {
    let (text, hint) = match text.trim().split_once("hint: ") {
        Some((before, hint)) if before.is_empty() || before.ends_with('\n') => {
            (before.trim(), Some(hint.trim()))
        }
        _ => (text.trim(), None),
    };
    let mut kept = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    if !text.is_empty() {
        print_line(&json!({"message": text}));
        if kept.messages.len() < MOST {
            kept.messages.push(text.to_owned());
        }
    }
    if let Some(hint) = hint {
        print_line(&json!({"hint": hint}));
        kept.hint = Some(hint.to_owned());
    }
}

/// Prints an error to standard error.
pub(crate) fn error(error: &JsonError<'_>) {
    print_line(&json!({"error": error}));
}

/// Returns the messages as a document, if the command printed no data.
pub(crate) fn document_of_messages() -> Option<impl Serialize> {
    if !is_on() || HAS_DATA.load(Ordering::Relaxed) {
        return None;
    }
    let mut kept = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Messages {
        messages: std::mem::take(&mut kept.messages),
        hint: kept.hint.take(),
    })
}

/// Returns JSON in which no character controls a terminal. JSON escapes most control characters
/// itself.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

fn print_line(value: &serde_json::Value) {
    // If standard error is gone, nothing can be done.
    let _ = writeln!(std::io::stderr().lock(), "{}", escaped(&value.to_string()));
}
