//! Numbers: decimal, octal (`0755`), hexadecimal, floating.

use super::{Lexer, TokenKind};
use crate::diagnostic::Diagnostic;

impl Lexer<'_> {
    pub(super) fn number(&mut self) -> Result<TokenKind, Diagnostic> {
        let text = number_text(self.rest());
        let span = self.span(self.position, self.position + text.len());
        let kind = number(text)
            .ok_or_else(|| Diagnostic::new(format!("`{text}` is not a number"), span))?;
        self.position += text.len();
        Ok(kind)
    }
}

/// Parses a text as a number, as Puppet reads it.
pub(crate) fn number(text: &str) -> Option<TokenKind> {
    let integer = |digits: &str, radix| i64::from_str_radix(digits, radix).ok();
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return integer(digits, 16)
            .filter(|_| plain)
            .map(TokenKind::Integer);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.len() {
        0 => None,
        1 if digits => integer(text, 10).map(TokenKind::Integer),
        _ if digits && text.starts_with('0') => integer(text, 8).map(TokenKind::Integer),
        _ if digits => integer(text, 10).map(TokenKind::Integer),
        _ => {
            let shape = text.bytes().next()?.is_ascii_digit()
                && text.bytes().all(|byte| {
                    byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+')
                });
            let value: f64 = text.parse().ok()?;
            (shape && value.is_finite()).then_some(TokenKind::Float(value))
        }
    }
}

/// Returns the characters that belong to the number at the start of the text.
fn number_text(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        let goes_on = match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' => true,
            // `1.5`, but not `1.each`.
            b'.' => next.is_some_and(u8::is_ascii_digit),
            // `1e-5`, but not `1-5` or `0xe-1`.
            b'-' | b'+' => {
                at > 0
                    && bytes[at - 1].eq_ignore_ascii_case(&b'e')
                    && !text[..at].to_ascii_lowercase().starts_with("0x")
                    && next.is_some_and(u8::is_ascii_digit)
            }
            _ => false,
        };
        if !goes_on {
            break;
        }
        at += 1;
    }
    &text[..at]
}
