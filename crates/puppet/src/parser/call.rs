//! Calls and their lambdas.

use super::{ParseResult, Parser};
use crate::ast::{Call, Expression, Kind, Lambda, Parameter};
use crate::lexer::TokenKind;

/// Functions that take arguments without parentheses.
const STATEMENT_CALLS: &[&str] = &[
    "require", "realize", "include", "contain", "tag", "debug", "info", "notice", "warning", "err",
    "error", "fail", "import", "break", "next", "return", "alert", "crit", "emerg",
];

impl Parser<'_> {
    /// Reads `name(…)`, with or without a lambda.
    pub(super) fn call(&mut self, name: &str) -> ParseResult<Expression> {
        let name_span = self.span();
        self.bump();
        self.call_with(name.to_owned(), name_span, None, Vec::new())
    }

    /// `Integer('1')`
    pub(super) fn call_of(&mut self, callee: Expression) -> ParseResult<Expression> {
        let span = callee.span;
        self.call_with("new".to_owned(), span, Some(callee), Vec::new())
    }

    /// `target.name`, `target.name(…)`, `target.name |…| { … }`
    pub(super) fn method(&mut self, target: Expression) -> ParseResult<Expression> {
        self.bump();
        let name_span = self.span();
        let TokenKind::Name(name) = self.kind() else {
            return Err(self.unexpected("the name of a function after `.`"));
        };
        self.bump();
        self.call_with(name.clone(), name_span, None, vec![target])
    }

    fn call_with(
        &mut self,
        name: String,
        name_span: crate::source::Span,
        callee: Option<Expression>,
        mut arguments: Vec<Expression>,
    ) -> ParseResult<Expression> {
        let start = arguments.first().map_or(name_span, |first| first.span);
        if self.is("(") {
            let opened = self.span();
            self.bump();
            arguments.extend(self.list(")", opened, "these arguments", Self::argument)?);
        }
        let lambda = if self.is("|") {
            Some(self.lambda()?)
        } else {
            None
        };
        let call = Call {
            name,
            name_span,
            callee,
            arguments,
            lambda,
        };
        self.new_expression(Kind::Call(Box::new(call)), start.to(self.last_span()))
    }

    /// Reads an argument. `f('a' => 1)` passes a hash.
    fn argument(&mut self) -> ParseResult<Expression> {
        let argument = self.element()?;
        if !self.eat("=>") {
            return Ok(argument);
        }
        let value = self.element()?;
        let span = argument.span.to(value.span);
        self.new_expression(Kind::Hash(vec![(argument, value)]), span)
    }

    /// Reads `include a, b`, if this is such a call.
    pub(super) fn statement_call(&mut self) -> ParseResult<Option<Expression>> {
        let TokenKind::Name(name) = self.kind() else {
            return Ok(None);
        };
        let alone = matches!(name.as_str(), "break" | "next" | "return");
        if !STATEMENT_CALLS.contains(&name.as_str()) || !self.argument_follows(alone) {
            return Ok(None);
        }
        let name_span = self.span();
        self.bump();
        let mut arguments = Vec::new();
        while self.starts_value() {
            arguments.push(self.element()?);
            if !self.eat(",") {
                break;
            }
        }
        let call = Call {
            name: name.clone(),
            name_span,
            callee: None,
            arguments,
            lambda: None,
        };
        let span = name_span.to(self.last_span());
        self.new_expression(Kind::Call(Box::new(call)), span)
            .map(Some)
    }

    fn argument_follows(&self, alone: bool) -> bool {
        match self.kind_at(1) {
            TokenKind::Symbol(symbol) => match *symbol {
                "[" | "-" | "!" | "*" => true,
                "}" | ";" => alone,
                _ => false,
            },
            TokenKind::End => alone,
            _ => true,
        }
    }

    fn starts_value(&self) -> bool {
        match self.kind() {
            TokenKind::Symbol(symbol) => matches!(*symbol, "[" | "-" | "!" | "*" | "(" | "{"),
            TokenKind::End => false,
            _ => true,
        }
    }

    fn lambda(&mut self) -> ParseResult<Lambda> {
        let opened = self.span();
        self.bump();
        let parameters = self.list("|", opened, "these parameters", Self::parameter)?;
        let returns = if self.eat(">>") {
            Some(self.type_expression()?)
        } else {
            None
        };
        let body = self.body("this lambda")?;
        Ok(Lambda {
            parameters,
            returns,
            body,
            span: opened.to(self.last_span()),
        })
    }

    /// Reads the `(…)` of a definition. Without it there are no parameters.
    pub(super) fn parameters(&mut self) -> ParseResult<Vec<Parameter>> {
        let opened = self.span();
        if self.eat("(") {
            self.list(")", opened, "these parameters", Self::parameter)
        } else {
            Ok(Vec::new())
        }
    }

    /// `Integer[1] *$name = 1`
    fn parameter(&mut self) -> ParseResult<Parameter> {
        let start = self.span();
        let type_expression = match self.kind() {
            TokenKind::TypeName(_) => Some(self.type_expression()?),
            _ => None,
        };
        let captures_rest = self.eat("*");
        let TokenKind::Variable(name) = self.kind() else {
            return Err(self.unexpected("a parameter like `$name`"));
        };
        self.bump();
        let default = if self.eat("=") {
            Some(self.element()?)
        } else {
            None
        };
        Ok(Parameter {
            name: name.clone(),
            type_expression,
            default,
            captures_rest,
            span: start.to(self.last_span()),
        })
    }

    /// `Optional[String[1]]`
    pub(super) fn type_expression(&mut self) -> ParseResult<Expression> {
        self.braces(true, |parser| {
            let primary = parser.primary()?;
            parser.postfix(primary)
        })
    }
}
