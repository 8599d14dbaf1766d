//! Strings: single quoted, double quoted with expressions inside.

use super::{Lexer, TokenKind, TokenSegment, variable_length};
use crate::diagnostic::Diagnostic;

/// The escapes that a text supports.
#[derive(Clone, Copy)]
pub(super) struct Escapes<'a> {
    pub(super) known: &'a str,
    pub(super) interpolate: bool,
}

impl Lexer<'_> {
    /// Reads `'…'`: only `\\` and `\'` are escapes.
    pub(super) fn single_quoted(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let body = &self.rest()[1..];
        let mut value = String::new();
        let mut characters = body.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\'' => {
                    self.position = start + at + 2;
                    return Ok(TokenKind::String(value));
                }
                '\\' => match characters.next() {
                    Some((_, escaped @ ('\\' | '\''))) => value.push(escaped),
                    Some((_, other)) => value.extend(['\\', other]),
                    None => break,
                },
                other => value.push(other),
            }
        }
        Err(self.unclosed(start, "'"))
    }

    pub(super) fn double_quoted(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        self.position += 1;
        let escapes = Escapes {
            known: "nrtsu$\\\"'",
            interpolate: true,
        };
        let segments = self.segments(Some('"'), escapes, start)?;
        Ok(match <[TokenSegment; 1]>::try_from(segments) {
            Ok([TokenSegment::Text(text)]) => TokenKind::String(text),
            Ok([only]) => TokenKind::Interpolated(vec![only]),
            Err(segments) if segments.is_empty() => TokenKind::String(String::new()),
            Err(segments) => TokenKind::Interpolated(segments),
        })
    }

    /// Reads text, variables and expressions up to the closing character or the end.
    pub(super) fn segments(
        &mut self,
        closing: Option<char>,
        escapes: Escapes<'_>,
        start: usize,
    ) -> Result<Vec<TokenSegment>, Diagnostic> {
        let mut segments = Vec::new();
        let mut text = String::new();
        loop {
            let Some(character) = self.rest().chars().next() else {
                match closing {
                    None => break,
                    Some(closing) => return Err(self.unclosed(start, &closing.to_string())),
                }
            };
            if Some(character) == closing {
                self.position += character.len_utf8();
                break;
            }
            let inserted = match character {
                '$' if escapes.interpolate => self.insertion()?,
                _ => None,
            };
            match inserted {
                Some(segment) => {
                    if !text.is_empty() {
                        segments.push(TokenSegment::Text(std::mem::take(&mut text)));
                    }
                    segments.push(segment);
                }
                None if character == '\\' => self.escape(escapes, &mut text),
                None => {
                    text.push(character);
                    self.position += character.len_utf8();
                }
            }
        }
        if !text.is_empty() {
            segments.push(TokenSegment::Text(text));
        }
        Ok(segments)
    }

    /// Reads `$name` or `${…}`. Returns nothing if the `$` is literal.
    fn insertion(&mut self) -> Result<Option<TokenSegment>, Diagnostic> {
        let start = self.position;
        if self.rest().starts_with("${") {
            let opened = self.span(start, start + 2);
            self.nesting += 1;
            if self.nesting > self.limits.depth / 2 {
                return Err(Diagnostic::new("strings are nested too deeply", opened));
            }
            self.position += 2;
            let tokens = self.until_closing_brace(opened)?;
            self.nesting -= 1;
            return Ok(Some(TokenSegment::Tokens(tokens)));
        }
        match variable_length(&self.rest()[1..]) {
            0 => Ok(None),
            length => {
                let name = self.rest()[1..=length].to_owned();
                self.position += 1 + length;
                let span = self.span(start, self.position);
                Ok(Some(TokenSegment::Variable(name, span)))
            }
        }
    }

    fn escape(&mut self, escapes: Escapes<'_>, text: &mut String) {
        let rest = &self.rest()[1..];
        let Some(escaped) = rest.chars().next() else {
            text.push('\\');
            self.position += 1;
            return;
        };
        // A heredoc's `\L` joins lines: the newline is removed.
        if escaped == '\n' && escapes.known.contains('L') {
            self.position += 2;
            return;
        }
        if !escapes.known.contains(escaped) {
            text.push('\\');
            self.position += 1;
            return;
        }
        let (value, length) = match escaped {
            'n' => ('\n', 1),
            'r' => ('\r', 1),
            't' => ('\t', 1),
            's' => (' ', 1),
            'u' => match unicode(&rest[1..]) {
                Some((value, length)) => (value, 1 + length),
                None => ('u', 1),
            },
            other => (other, other.len_utf8()),
        };
        text.push(value);
        self.position += 1 + length;
    }

    fn unclosed(&self, start: usize, quote: &str) -> Diagnostic {
        let span = self.span(start, start + 1);
        Diagnostic::new("this string is never closed", span).hint(format!("add `{quote}`"))
    }
}

/// Reads `1F600` of `\u{1F600}`, or four digits.
fn unicode(text: &str) -> Option<(char, usize)> {
    let (digits, length) = match text.strip_prefix('{') {
        Some(inner) => {
            let end = inner.find('}').filter(|end| (1..=6).contains(end))?;
            (&inner[..end], end + 2)
        }
        None => (text.get(..4)?, 4),
    };
    let code = u32::from_str_radix(digits, 16).ok()?;
    Some((char::from_u32(code)?, length))
}
