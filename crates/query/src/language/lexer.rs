//! Splits a text into tokens.

use std::ops::Range;

use super::error::QueryError;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// A keyword, an entity or a field; the parser distinguishes them.
    Word(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Symbol(&'static str),
    End,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct SpannedToken {
    pub(super) token: Token,
    pub(super) span: Range<usize>,
}

/// Longest first: `>=` before `>`.
const SYMBOLS: &[&str] = &[
    "!=", ">=", "<=", "!~", "~>", "{", "}", "[", "]", "(", ")", ",", ".", "=", ">", "<", "~", "*",
    "!",
];

/// Returns the tokens of a query, with an end token after the last.
pub(super) fn lex(text: &str) -> Result<Vec<SpannedToken>, QueryError> {
    let mut tokens: Vec<SpannedToken> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let character = rest.chars().next().expect("there is more text");
        if character.is_whitespace() {
            at += character.len_utf8();
            continue;
        }
        if character == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let after_dot = tokens
            .last()
            .is_some_and(|last| last.token == Token::Symbol("."));
        let (token, length) = next(rest, after_dot).map_err(|error| error.moved(at))?;
        tokens.push(SpannedToken {
            token,
            span: at..at + length,
        });
        at += length;
    }
    tokens.push(SpannedToken {
        token: Token::End,
        span: text.len()..text.len(),
    });
    Ok(tokens)
}

impl QueryError {
    fn moved(mut self, by: usize) -> Self {
        self.span = self.span.start + by..self.span.end + by;
        self
    }
}

fn next(rest: &str, after_dot: bool) -> Result<(Token, usize), QueryError> {
    let first = rest.chars().next().expect("there is more text");
    if first == '"' || first == '\'' {
        return text(rest, first);
    }
    let negative = rest.starts_with('-') && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    if first.is_ascii_digit() || negative {
        return number(rest, after_dot);
    }
    if first.is_alphabetic() || first == '_' {
        let ends = |character: char| !(character.is_alphanumeric() || "_-".contains(character));
        let length = rest.find(ends).unwrap_or(rest.len());
        return Ok((Token::Word(rest[..length].to_owned()), length));
    }
    match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        Some(symbol) => Ok((Token::Symbol(symbol), symbol.len())),
        None => {
            let message = format!("unexpected `{first}`");
            let error = QueryError::new(message, 0..first.len_utf8());
            Err(match first {
                '&' => error.hint("write `and`"),
                '|' => error.hint("write `or`"),
                _ => error,
            })
        }
    }
}

fn text(rest: &str, quote: char) -> Result<(Token, usize), QueryError> {
    let mut out = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\'' | '\\'))) => out.push(escaped),
                // Any other escape belongs to a regular expression.
                Some((_, other)) => {
                    out.push('\\');
                    out.push(other);
                }
                None => break,
            },
            end if end == quote => return Ok((Token::Text(out), at + 1)),
            other => out.push(other),
        }
    }
    let error = QueryError::new("this string is not closed", 0..rest.len());
    Err(error.hint(format!("close it with {quote}")))
}

/// Reads a number. After a dot it is an index into a list: `models.0.name`.
fn number(rest: &str, after_dot: bool) -> Result<(Token, usize), QueryError> {
    let digits = |from: usize| {
        let tail = &rest[from..];
        from + tail
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(tail.len())
    };
    let mut end = digits(usize::from(rest.starts_with('-')));
    let mut whole = true;
    let fraction = rest[end..].strip_prefix('.');
    if !after_dot && fraction.is_some_and(|tail| tail.starts_with(|c: char| c.is_ascii_digit())) {
        end = digits(end + 1);
        whole = false;
    }
    let written = &rest[..end];
    let token = if whole {
        written.parse().map(Token::Integer).ok()
    } else {
        written.parse().map(Token::Float).ok()
    };
    match token {
        Some(token) => Ok((token, end)),
        None => Err(QueryError::new("this number is too large", 0..end)),
    }
}
