//! Tokens to expressions: a Pratt parser.
//!
//! Nesting and chain length are bounded, so that neither this recursion nor any later one over the
//! tree overflows a stack.

mod attribute;
mod call;
mod definition;
mod expression;
mod height;
mod operator;
mod primary;
mod resource;
mod statement;

use crate::ast::{Expression, Kind};
use crate::diagnostic::Diagnostic;
use crate::lexer::{Token, TokenKind};
use crate::limits::Limits;
use crate::source::Span;

type ParseResult<T> = Result<T, Diagnostic>;

/// Parses a whole file.
pub(crate) fn parse(
    tokens: &[Token],
    fallback: Span,
    limits: &Limits,
) -> Result<Vec<Expression>, Diagnostic> {
    let mut parser = Parser::new(tokens, fallback, limits, 0);
    let mut statements = Vec::new();
    while !parser.at_end() {
        if parser.eat(";") {
            continue;
        }
        statements.push(parser.statement()?);
    }
    Ok(statements)
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    limits: &'t Limits,
    depth: usize,
    /// A `{` after a word starts a body here (`if x {`), not a resource.
    brace_is_body: bool,
    fallback: Span,
}

impl<'t> Parser<'t> {
    fn new(tokens: &'t [Token], fallback: Span, limits: &'t Limits, depth: usize) -> Self {
        Self {
            tokens,
            at: 0,
            limits,
            depth,
            brace_is_body: false,
            fallback,
        }
    }

    fn kind(&self) -> &'t TokenKind {
        self.kind_at(0)
    }

    fn kind_at(&self, ahead: usize) -> &'t TokenKind {
        self.tokens
            .get(self.at + ahead)
            .map_or(&TokenKind::End, |token| &token.kind)
    }

    fn span(&self) -> Span {
        self.tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(self.fallback, |token| token.span)
    }

    /// Returns the span of the token before the current one.
    fn last_span(&self) -> Span {
        match self.at {
            0 => self.span(),
            at => self
                .tokens
                .get(at - 1)
                .map_or(self.fallback, |token| token.span),
        }
    }

    fn after_space(&self) -> bool {
        self.tokens
            .get(self.at)
            .is_none_or(|token| token.after_space)
    }

    fn at_end(&self) -> bool {
        matches!(self.kind(), TokenKind::End)
    }

    fn is(&self, symbol: &str) -> bool {
        self.is_at(0, symbol)
    }

    fn is_at(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.kind_at(ahead), TokenKind::Symbol(found) if *found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Name(found) if found == word)
    }

    fn bump(&mut self) {
        self.at += 1;
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        if found {
            self.bump();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, symbol: &str, place: &str) -> ParseResult<Span> {
        if self.eat(symbol) {
            return Ok(self.last_span());
        }
        Err(self.unexpected(&format!("`{symbol}` {place}")))
    }

    /// Reads the closing symbol of a pair. If it is missing, the error shows the opening one.
    fn expect_closing(&mut self, symbol: &str, opened: Span, what: &str) -> ParseResult<Span> {
        if self.eat(symbol) {
            return Ok(self.last_span());
        }
        let problem = self.unexpected(&format!("`{symbol}` at the end of {what}"));
        Err(problem.also(opened, "opened here"))
    }

    fn unexpected(&self, wanted: &str) -> Diagnostic {
        let found = self.kind().describe();
        Diagnostic::new(format!("expected {wanted}, found {found}"), self.span())
            .label(format!("expected {wanted}"))
    }

    /// Runs `work` one level deeper.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth >= self.limits.depth {
            return Err(self.too_deep(self.span()));
        }
        self.depth += 1;
        let outcome = work(self);
        self.depth -= 1;
        outcome
    }

    /// Runs `work` with another meaning of `{` after words.
    fn braces<T>(
        &mut self,
        is_body: bool,
        work: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        let outer = std::mem::replace(&mut self.brace_is_body, is_body);
        let outcome = work(self);
        self.brace_is_body = outer;
        outcome
    }

    fn too_deep(&self, span: Span) -> Diagnostic {
        let message = format!("code is nested deeper than {} levels", self.limits.depth);
        Diagnostic::new(message, span).hint("split it with variables or functions")
    }

    /// Creates an expression from its parts. Refuses one that is too high.
    fn new_expression(&self, kind: Kind, span: Span) -> ParseResult<Expression> {
        let height = height::of(&kind);
        if height as usize > self.limits.depth {
            return Err(self.too_deep(span));
        }
        Ok(Expression { kind, span, height })
    }

    /// Reads a comma-separated list up to a closing symbol. The trailing comma is optional.
    fn list<T>(
        &mut self,
        closing: &str,
        opened: Span,
        what: &str,
        mut item: impl FnMut(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<Vec<T>> {
        let mut items = Vec::new();
        self.braces(false, |parser| {
            while !parser.is(closing) {
                items.push(item(parser)?);
                if !parser.eat(",") {
                    break;
                }
            }
            parser.expect_closing(closing, opened, what)
        })?;
        Ok(items)
    }

    /// Reads `{ … }` with statements inside.
    fn body(&mut self, what: &str) -> ParseResult<Vec<Expression>> {
        let opened = self.expect("{", &format!("at the start of {what}"))?;
        self.deeper(|parser| {
            parser.braces(false, |parser| {
                let mut statements = Vec::new();
                while !parser.is("}") && !parser.at_end() {
                    if parser.eat(";") {
                        continue;
                    }
                    statements.push(parser.statement()?);
                }
                parser.expect_closing("}", opened, what)?;
                Ok(statements)
            })
        })
    }
}
