//! The text of an error with the texts of its causes.

use std::error::Error;

/// Formats an error and all its causes on one line: `cannot read x: permission denied`.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
