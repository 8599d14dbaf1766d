//! Text that cannot control a terminal.
//!
//! Facts, reasons, logs and reports come from nodes, and a node must not control the terminal of an
//! operator. All text for people passes [`visible`], in [`crate::output`] or with `note!`.

use std::borrow::Cow;

/// Returns the number of columns of a terminal, or nothing if this is not a terminal.
pub(crate) fn columns(terminal: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
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

/// Returns the text as [`visible`] does, except that our own colours stay.
pub(crate) fn visible_with_colours(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, sequence) = rest.split_at(at);
        shown.push_str(&visible(before));
        let length = colour_length(sequence).unwrap_or(1);
        let (sequence, after) = sequence.split_at(length);
        if length == 1 {
            shown.push_str(&visible(sequence));
        } else {
            shown.push_str(sequence);
        }
        rest = after;
    }
    shown.push_str(&visible(rest));
    Cow::Owned(shown)
}

/// Returns the length of the sequence at the start of the text if it only sets a colour or a
/// weight, or resets them. Text from elsewhere may contain such sequences; they hide nothing.
fn colour_length(text: &str) -> Option<usize> {
    let (codes, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    let is_harmless = |code: &str| {
        matches!(code, "" | "0" | "1" | "2" | "39")
            || matches!(code.parse::<u8>(), Ok(31..=37 | 91..=97))
    };
    codes
        .split(';')
        .all(is_harmless)
        .then_some("\u{1b}[".len() + codes.len() + "m".len())
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
        let ours = "\u{1b}[1m\u{1b}[32mok\u{1b}[0m";
        let mixed = format!("{ours} {hostile} \u{1b}[8mhidden \u{1b}[");
        assert_eq!(
            visible_with_colours(&mixed),
            format!("{ours} {} \\x1b[8mhidden \\x1b[", visible(hostile))
        );
        assert!(matches!(visible("größe 5 ✓\n"), Cow::Borrowed(_)));
    }
}
