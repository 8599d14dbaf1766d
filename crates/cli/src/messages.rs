//! Messages for people, on standard error.

use std::io::Write;

use crate::terminal::visible;
use crate::{json_mode, waiting};

/// Prints a line to standard error. With `--json`, it is JSON.
pub(crate) fn note(text: &str) {
    if json_mode::is_on() {
        return json_mode::message(text);
    }
    waiting::before_output();
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(text));
}
