//! Finds Python's text formatting, `'%s-%s' % (a, b)`, inside a tag.

use std::ops::Range;

/// Returns the place of each `%` that follows a text literal, from the end of the literal, and its
/// operand without parentheses.
pub(super) fn formats(tag: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let bytes = tag.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'\'' | b'"') {
            at += 1;
            continue;
        }
        let end = end_of_text(bytes, at);
        let operator = skip_space(bytes, end);
        at = end;
        // `%}` ends the tag.
        if bytes.get(operator) != Some(&b'%') || bytes.get(operator + 1) == Some(&b'}') {
            continue;
        }
        if !tag[..end].ends_with(['\'', '"']) {
            continue;
        }
        let start = skip_space(bytes, operator + 1);
        let Some(stop) = end_of_operand(bytes, start) else {
            continue;
        };
        let is_group = bytes.get(start) == Some(&b'(') && closing(bytes, start) == Some(stop);
        let operand = if is_group {
            start + 1..stop - 1
        } else {
            start..stop
        };
        found.push((end..operator + 1, operand));
        at = stop;
    }
    found
}

fn skip_space(bytes: &[u8], from: usize) -> usize {
    let space = bytes[from..]
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace());
    from + space.count()
}

/// Returns the position after a text literal.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if byte == bytes[start] => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Returns the position after the bracket that closes the one at `start`.
fn closing(bytes: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'\'' | b'"' => {
                at = end_of_text(bytes, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the end of a name, number, text or group, with the members and calls that follow it.
fn end_of_operand(bytes: &[u8], start: usize) -> Option<usize> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut at = match bytes.get(start)? {
        b'(' => closing(bytes, start)?,
        b'\'' | b'"' => end_of_text(bytes, start),
        byte if is_word(byte) => start,
        _ => return None,
    };
    loop {
        at += bytes[at..].iter().take_while(|byte| is_word(byte)).count();
        match bytes.get(at) {
            Some(b'.') => at += 1,
            Some(b'(' | b'[') => at = closing(bytes, at)?,
            _ => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tag: &str) -> Vec<(&str, &str)> {
        let found = formats(tag);
        let both = found.into_iter();
        both.map(|(operator, operand)| (&tag[operator], &tag[operand]))
            .collect()
    }

    #[test]
    fn operands_are_found_with_their_members_and_calls() {
        assert_eq!(shown("{{ 'a%s' % x }}"), [(" %", "x")]);
        assert_eq!(
            shown("{{ \"%s-%s\" % (a['b'], c.d(1)) ~ 'x' }}"),
            [(" %", "a['b'], c.d(1)")]
        );
        assert_eq!(
            shown("{{ f('a:%s' % (x), 'b' % y.z) }}"),
            [(" %", "x"), (" %", "y.z")]
        );
        assert_eq!(shown("{{ 7 % 2 }}{% set x = 'y' %}"), []);
        assert_eq!(shown("{{ 'unclosed % x"), []);
    }
}
