//! Tokens.

use crate::source::Span;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
    /// White space precedes it: `$a [1]` is not `$a[1]`.
    pub(crate) after_space: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TokenKind {
    /// A bare word, including keywords: its meaning depends on its place.
    Name(String),
    TypeName(String),
    Variable(String),
    Integer(i64),
    Float(f64),
    String(String),
    Interpolated(Vec<TokenSegment>),
    Regex(String),
    Symbol(&'static str),
    End,
}

/// A part of an interpolated string.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum TokenSegment {
    Text(String),
    /// `$name`
    Variable(String, Span),
    /// `${ … }`
    Tokens(Vec<Token>),
}

impl TokenKind {
    /// Describes the token for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Name(name) | Self::TypeName(name) => format!("`{name}`"),
            Self::Variable(name) => format!("`${name}`"),
            Self::Integer(_) | Self::Float(_) => "a number".to_owned(),
            Self::String(_) | Self::Interpolated(_) => "a string".to_owned(),
            Self::Regex(_) => "a regular expression".to_owned(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end".to_owned(),
        }
    }
}
