//! Text to tokens.
//!
//! Lexing depends on context in three places: `/` starts a regular expression only where a value
//! may start, strings hold expressions, and a heredoc's text starts on the line after it. The lexer
//! does not distinguish words from keywords.

mod heredoc;
mod number;
mod string;
mod token;

use crate::diagnostic::Diagnostic;
use crate::limits::Limits;
use crate::source::{FileId, Span};
pub(crate) use number::number;
pub(crate) use token::{Token, TokenKind, TokenSegment};

/// The symbols, longest first, so that `->` is not `-` and `>`.
const SYMBOLS: &[&str] = &[
    "<<|", "|>>", "->", "~>", "<-", "<~", "=>", "+>", "==", "!=", "=~", "!~", "<=", ">=", "<<",
    ">>", "+=", "-=", "<|", "|>", "@@", "{", "}", "(", ")", "[", "]", ",", ";", ":", ".", "?", "=",
    "<", ">", "+", "-", "*", "/", "%", "!", "|", "@",
];

/// Returns all tokens of a text, with [`TokenKind::End`] last.
pub(crate) fn tokens(text: &str, file: FileId, limits: &Limits) -> Result<Vec<Token>, Diagnostic> {
    if text.len() > limits.source_bytes {
        let message = format!("the file is larger than {} bytes", limits.source_bytes);
        return Err(Diagnostic::new(message, Span::new(file, 0, 0)));
    }
    let text_start = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut lexer = Lexer::new(text, file, limits);
    lexer.position = text_start;
    lexer.until_end()
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    file: FileId,
    limits: &'a Limits,
    position: usize,
    tokens: Vec<Token>,
    /// The position after the heredocs of this line, where the text continues.
    after_heredocs: Option<usize>,
    /// The nesting depth of strings in expressions in strings.
    nesting: usize,
    /// Set for texts that differ from the file (heredocs).
    fixed_span: Option<Span>,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str, file: FileId, limits: &'a Limits) -> Self {
        Self {
            text,
            file,
            limits,
            position: 0,
            tokens: Vec::new(),
            after_heredocs: None,
            nesting: 0,
            fixed_span: None,
        }
    }

    fn until_end(mut self) -> Result<Vec<Token>, Diagnostic> {
        while self.next_token()? {}
        let end = self.span(self.position, self.position);
        self.push_spanned(TokenKind::End, end, true);
        Ok(self.tokens)
    }

    /// Reads tokens up to the `}` that closes an interpolation. The position is then after it.
    fn until_closing_brace(&mut self, opened: Span) -> Result<Vec<Token>, Diagnostic> {
        let outer = std::mem::take(&mut self.tokens);
        let mut depth = 0usize;
        loop {
            if !self.next_token()? {
                return Err(Diagnostic::new("`${` is never closed", opened).hint("add `}`"));
            }
            match self.tokens.last().map(|token| &token.kind) {
                Some(TokenKind::Symbol("{")) => depth += 1,
                Some(TokenKind::Symbol("}")) if depth == 0 => break,
                Some(TokenKind::Symbol("}")) => depth -= 1,
                _ => {}
            }
        }
        self.tokens.pop();
        let end = self.span(self.position - 1, self.position);
        self.push_spanned(TokenKind::End, end, true);
        Ok(std::mem::replace(&mut self.tokens, outer))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        self.fixed_span
            .unwrap_or_else(|| Span::new(self.file, start, end))
    }

    fn push_spanned(&mut self, kind: TokenKind, span: Span, after_space: bool) {
        self.tokens.push(Token {
            kind,
            span,
            after_space,
        });
    }

    /// Reads one token. Returns false at the end of the text.
    fn next_token(&mut self) -> Result<bool, Diagnostic> {
        let before = self.position;
        self.skip_space()?;
        let after_space = self.position > before || before == 0;
        let start = self.position;
        let Some(first) = self.rest().chars().next() else {
            return Ok(false);
        };
        let kind = match first {
            '0'..='9' => self.number()?,
            '$' => self.variable()?,
            '\'' => self.single_quoted()?,
            '"' => self.double_quoted()?,
            '/' if self.regex_may_start() => self.regex_or_slash()?,
            '@' if self.heredoc_starts() => self.heredoc()?,
            first if first.is_ascii_alphabetic() || first == '_' => self.word(),
            ':' if self.rest().starts_with("::") && self.qualified_follows() => self.word(),
            _ => self.symbol()?,
        };
        let span = self.span(start, self.position);
        self.push_spanned(kind, span, after_space);
        Ok(true)
    }

    fn skip_space(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            match rest.bytes().next() {
                Some(b'\n') => {
                    self.position = self.after_heredocs.take().unwrap_or(self.position + 1);
                }
                Some(b' ' | b'\t' | b'\r') => self.position += 1,
                Some(b'#') => self.position += rest.find('\n').unwrap_or(rest.len()),
                Some(b'/') if rest.starts_with("/*") => {
                    let Some(end) = rest.find("*/") else {
                        let span = self.span(self.position, self.position + 2);
                        return Err(
                            Diagnostic::new("this comment is never closed", span).hint("add `*/`")
                        );
                    };
                    self.position += end + 2;
                }
                _ if rest.starts_with('\u{a0}') => self.position += '\u{a0}'.len_utf8(),
                _ => return Ok(()),
            }
        }
    }

    fn qualified_follows(&self) -> bool {
        let after = self.rest().as_bytes().get(2);
        after.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
    }

    /// Reads `name`, `a::b`, `foo-bar`, `Type::Name`.
    fn word(&mut self) -> TokenKind {
        let length = qualified_length(self.rest());
        let mut word = &self.rest()[..length];
        let capital = word
            .trim_start_matches("::")
            .starts_with(|first: char| first.is_ascii_uppercase());
        if !capital && !word.contains("::") {
            word = &self.rest()[..dashed_length(self.rest(), length)];
        }
        self.position += word.len();
        if capital {
            TokenKind::TypeName(word.to_owned())
        } else {
            TokenKind::Name(word.to_owned())
        }
    }

    fn variable(&mut self) -> Result<TokenKind, Diagnostic> {
        match variable_length(&self.rest()[1..]) {
            0 => {
                let span = self.span(self.position, self.position + 1);
                Err(Diagnostic::new("`$` without the name of a variable", span))
            }
            length => {
                let name = self.rest()[1..=length].to_owned();
                self.position += 1 + length;
                Ok(TokenKind::Variable(name))
            }
        }
    }

    fn symbol(&mut self) -> Result<TokenKind, Diagnostic> {
        let rest = self.rest();
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => {
                self.position += symbol.len();
                Ok(TokenKind::Symbol(symbol))
            }
            None => {
                let odd = rest.chars().next().unwrap_or(' ');
                let span = self.span(self.position, self.position + odd.len_utf8());
                let message = format!("unexpected `{}`", odd.escape_debug());
                Err(Diagnostic::new(message, span))
            }
        }
    }

    /// Returns true if `/` starts a regular expression. After a value, it divides.
    fn regex_may_start(&self) -> bool {
        match self.tokens.last().map(|token| &token.kind) {
            None => true,
            Some(TokenKind::Symbol(symbol)) => !matches!(*symbol, ")" | "]" | "|>" | "|>>"),
            Some(TokenKind::Name(name)) => matches!(
                name.as_str(),
                "if" | "elsif" | "unless" | "case" | "node" | "and" | "or" | "in"
            ),
            Some(_) => false,
        }
    }

    fn regex_or_slash(&mut self) -> Result<TokenKind, Diagnostic> {
        let body = &self.rest()[1..];
        let mut escaped = false;
        for (at, character) in body.char_indices() {
            match character {
                '\n' => break,
                '/' if !escaped => {
                    self.position += at + 2;
                    return Ok(TokenKind::Regex(body[..at].replace("\\/", "/")));
                }
                _ => escaped = character == '\\' && !escaped,
            }
        }
        self.symbol()
    }
}

/// Returns the length of `a::b::c`, with or without a leading `::`.
fn qualified_length(text: &str) -> usize {
    let part = |from: usize| -> usize {
        text.as_bytes()[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count()
    };
    let mut length = if text.starts_with("::") { 2 } else { 0 };
    length += part(length);
    while text[length..].starts_with("::") {
        match part(length + 2) {
            0 => break,
            more => length += 2 + more,
        }
    }
    length
}

/// Returns the length of a variable's name.
fn variable_length(text: &str) -> usize {
    match qualified_length(text) {
        2 if text.starts_with("::") => 0,
        length => length,
    }
}

/// Returns the length of a bare word, which may have dashes inside (`foo-bar`), not at its end.
fn dashed_length(text: &str, length: usize) -> usize {
    let bytes = text.as_bytes();
    let mut end = length;
    let mut at = length;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'-' => {}
            byte if byte.is_ascii_alphanumeric() || *byte == b'_' => end = at + 1,
            _ => break,
        }
        at += 1;
    }
    end
}
