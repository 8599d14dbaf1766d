//! Text that cannot control a terminal.
//!
//! Facts, reasons, logs and reports come from nodes, and a node must not control the terminal of an
//! operator. All text for people passes [`visible`], in [`crate::output`] or with `note!`.

use std::borrow::Cow;
use std::io::Write;

/// Prints a line to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(text));
}

/// Returns the text with control characters as escapes, such as `\x1b`. Line breaks and tabs
/// stay. Characters that change the direction of text are escaped too: they hide what is written.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match u32::from(c) {
            _ if !is_hidden(c) => shown.push(c),
            code @ 0..=0xff => shown.push_str(&format!("\\x{code:02x}")),
            code => shown.push_str(&format!("\\u{{{code:x}}}")),
        }
    }
    Cow::Owned(shown)
}

/// Returns whether a character could control a terminal, or hide what is written.
pub(crate) fn is_hidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_controls_the_terminal() {
        let hostile = "a\u{1b}[2J\u{1b}]0;title\u{7}\rb\u{9b}31m\u{202e}c\n\td";
        assert_eq!(
            visible(hostile),
            "a\\x1b[2J\\x1b]0;title\\x07\\x0db\\x9b31m\\u{202e}c\n\td"
        );
        assert!(matches!(visible("größe 5 ✓\n"), Cow::Borrowed(_)));
    }
}
