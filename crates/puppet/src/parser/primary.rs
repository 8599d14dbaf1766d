//! The primary values of expressions.

use super::{ParseResult, Parser};
use crate::ast::{Expression, Kind, Segment};
use crate::diagnostic::Diagnostic;
use crate::lexer::{Token, TokenKind, TokenSegment};
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> ParseResult<Expression> {
        let span = self.span();
        let kind = match self.kind() {
            TokenKind::Integer(value) => Kind::Integer(*value),
            TokenKind::Float(value) => Kind::Float(*value),
            TokenKind::String(value) => Kind::String(value.clone()),
            TokenKind::Regex(pattern) => Kind::Regex(pattern.clone()),
            TokenKind::Variable(name) => Kind::Variable(name.clone()),
            TokenKind::Interpolated(segments) => self.interpolated(segments, span)?,
            TokenKind::Symbol("[") => return self.array(),
            TokenKind::Symbol("{") => return self.hash(),
            TokenKind::Symbol("(") => return self.parenthesised(),
            TokenKind::Symbol("@" | "@@") => return self.virtual_resource(),
            TokenKind::Name(word) => return self.word(word),
            TokenKind::TypeName(name) => return self.type_name(name),
            _ => return Err(self.unexpected("a value")),
        };
        self.bump();
        self.new_expression(kind, span)
    }

    fn array(&mut self) -> ParseResult<Expression> {
        let opened = self.span();
        self.bump();
        let items = self.list("]", opened, "this array", |parser| {
            let item = parser.element()?;
            // `['a' => 1]` is an array with a hash in it.
            if parser.is("=>") {
                parser.bump();
                let value = parser.element()?;
                let span = item.span.to(value.span);
                parser.new_expression(Kind::Hash(vec![(item, value)]), span)
            } else {
                Ok(item)
            }
        })?;
        self.new_expression(Kind::Array(items), opened.to(self.last_span()))
    }

    fn hash(&mut self) -> ParseResult<Expression> {
        let opened = self.span();
        self.bump();
        let pairs = self.list("}", opened, "this hash", Self::pair)?;
        self.new_expression(Kind::Hash(pairs), opened.to(self.last_span()))
    }

    fn parenthesised(&mut self) -> ParseResult<Expression> {
        let opened = self.span();
        self.bump();
        let inner = self.braces(false, |parser| {
            let inner = parser.expression()?;
            parser.expect_closing(")", opened, "these parentheses")?;
            Ok(inner)
        })?;
        self.new_expression(Kind::Block(vec![inner]), opened.to(self.last_span()))
    }

    /// Reads a word in value position: a literal, a choice, a call, a resource or itself.
    fn word(&mut self, word: &str) -> ParseResult<Expression> {
        let span = self.span();
        let kind = match word {
            "undef" => Kind::Undef,
            "default" => Kind::Default,
            "true" => Kind::Boolean(true),
            "false" => Kind::Boolean(false),
            "if" | "unless" => return self.choice(),
            "case" => return self.case(),
            _ if self.is_at(1, "(") => return self.call(word),
            _ if self.is_at(1, "{") && !self.brace_is_body => return self.resource(),
            _ => Kind::Name(word.to_owned()),
        };
        self.bump();
        self.new_expression(kind, span)
    }

    fn type_name(&mut self, name: &str) -> ParseResult<Expression> {
        let span = self.span();
        if let TokenKind::Symbol("<|" | "<<|") = self.kind_at(1) {
            return self.collector(name);
        }
        if self.is_at(1, "{") && !self.brace_is_body {
            return self.resource_defaults(name);
        }
        self.bump();
        let name = self.new_expression(Kind::TypeName(name.to_owned()), span)?;
        if self.is("(") && !self.after_space() {
            self.call_of(name)
        } else {
            Ok(name)
        }
    }

    fn interpolated(&mut self, segments: &[TokenSegment], span: Span) -> ParseResult<Kind> {
        let mut parts = Vec::with_capacity(segments.len());
        for segment in segments {
            parts.push(match segment {
                TokenSegment::Text(text) => Segment::Text(text.clone()),
                TokenSegment::Variable(name, span) => {
                    Segment::Expression(self.new_expression(Kind::Variable(name.clone()), *span)?)
                }
                TokenSegment::Tokens(tokens) => Segment::Expression(self.inserted(tokens, span)?),
            });
        }
        Ok(Kind::Interpolated(parts))
    }

    /// Reads an interpolation: `${name}`, `${name[0]}` and `${name.upcase}` mean the variable.
    fn inserted(&self, tokens: &[Token], string: Span) -> ParseResult<Expression> {
        let mut tokens = tokens.to_vec();
        let call = matches!(
            tokens.get(1).map(|next| &next.kind),
            Some(TokenKind::Symbol("("))
        );
        if let Some(first) = tokens.first_mut()
            && let TokenKind::Name(word) = &first.kind
            && !call
            && !matches!(
                word.as_str(),
                "if" | "unless" | "case" | "true" | "false" | "undef"
            )
        {
            first.kind = TokenKind::Variable(word.clone());
        }
        // Names of matches, such as `${0}`.
        if let [
            Token {
                kind: TokenKind::Integer(number @ 0..),
                ..
            },
            Token {
                kind: TokenKind::End,
                ..
            },
        ] = tokens.as_slice()
        {
            let name = number.to_string();
            return self.new_expression(Kind::Variable(name), string);
        }
        let span = tokens.first().map_or(string, |token| token.span);
        if matches!(
            tokens.first().map(|token| &token.kind),
            None | Some(TokenKind::End)
        ) {
            return self.new_expression(Kind::Undef, span);
        }
        let mut inner = Parser::new(&tokens, span, self.limits, self.depth);
        let expression = inner.deeper(|inner| inner.expression())?;
        if inner.at_end() {
            Ok(expression)
        } else {
            Err(Diagnostic::new(
                "only one expression is allowed in `${…}`",
                inner.span(),
            ))
        }
    }
}
