//! Statements of a file or body.

use super::{ParseResult, Parser};
use crate::ast::{CaseOption, Expression, If, Kind};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> ParseResult<Expression> {
        if let Some(definition) = self.definition()? {
            return Ok(definition);
        }
        if let Some(call) = self.statement_call()? {
            return Ok(call);
        }
        self.expression()
    }

    /// Reads `if` or `unless`, with `elsif` and `else`.
    pub(super) fn choice(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        let negated = self.is_word("unless");
        self.bump();
        let condition = self.braces(true, Self::expression)?;
        let then = self.body("this branch")?;
        let otherwise = if self.is_word("elsif") && !negated {
            vec![self.deeper(Self::choice)?]
        } else if self.eat_word("else") {
            self.body("this branch")?
        } else {
            Vec::new()
        };
        let choice = If {
            condition,
            negated,
            then,
            otherwise,
        };
        self.new_expression(Kind::If(Box::new(choice)), start.to(self.last_span()))
    }

    pub(super) fn case(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let target = self.braces(true, Self::expression)?;
        let opened = self.expect("{", "after the control expression of `case`")?;
        let mut options = Vec::new();
        while !self.is("}") && !self.at_end() {
            let values = self.case_values()?;
            let body = self.body("this option")?;
            options.push(CaseOption { values, body });
        }
        self.expect_closing("}", opened, "this `case`")?;
        let span = start.to(self.last_span());
        self.new_expression(Kind::Case(Box::new(target), options), span)
    }

    fn case_values(&mut self) -> ParseResult<Vec<Expression>> {
        let mut values = Vec::new();
        loop {
            values.push(self.element()?);
            if !self.eat(",") || matches!(self.kind(), TokenKind::Symbol(":")) {
                break;
            }
        }
        self.expect(":", "after the values of this option")?;
        Ok(values)
    }
}
