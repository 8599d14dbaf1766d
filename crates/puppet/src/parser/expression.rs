//! Expressions: operators and postfix forms (`[…]`, `.name`, `? { }`).

use super::operator::{self, Infix};
use super::{ParseResult, Parser};
use crate::ast::{Expression, Kind, UnaryOperator};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Reads a whole expression, including assignments and chains.
    pub(super) fn expression(&mut self) -> ParseResult<Expression> {
        self.binding(0)
    }

    /// Reads an expression inside a list: no chain, no assignment.
    pub(super) fn element(&mut self) -> ParseResult<Expression> {
        self.binding(operator::ASSIGNMENT + 1)
    }

    /// Reads operators that bind at least this strongly.
    fn binding(&mut self, least: u8) -> ParseResult<Expression> {
        self.deeper(|parser| {
            let mut left = parser.prefix()?;
            while let Some((infix, strength)) = operator::infix(parser) {
                if strength < least {
                    break;
                }
                parser.bump();
                // Assignments nest to the right, everything else to the left.
                let least = match infix {
                    Infix::Assign(_) => strength,
                    Infix::Binary(_) => strength + 1,
                };
                let right = parser.binding(least)?;
                left = parser.joined(infix, left, right)?;
            }
            Ok(left)
        })
    }

    fn joined(&self, infix: Infix, left: Expression, right: Expression) -> ParseResult<Expression> {
        let span = left.span.to(right.span);
        let (left, right) = (Box::new(left), Box::new(right));
        let kind = match infix {
            Infix::Binary(operator) => Kind::Binary(operator, left, right),
            Infix::Assign(operator) => Kind::Assign(operator, left, right),
        };
        self.new_expression(kind, span)
    }

    fn prefix(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        let operator = match self.kind() {
            TokenKind::Symbol("!") => UnaryOperator::Not,
            TokenKind::Symbol("-") => UnaryOperator::Negate,
            TokenKind::Symbol("*") => UnaryOperator::Splat,
            _ => {
                let primary = self.primary()?;
                return self.postfix(primary);
            }
        };
        self.bump();
        let operand = self.binding(operator::UNARY)?;
        let span = start.to(operand.span);
        self.new_expression(Kind::Unary(operator, Box::new(operand)), span)
    }

    pub(super) fn postfix(&mut self, mut target: Expression) -> ParseResult<Expression> {
        loop {
            target = match self.kind() {
                TokenKind::Symbol("[") if !self.after_space() => self.access(target)?,
                TokenKind::Symbol(".") => self.method(target)?,
                TokenKind::Symbol("?") => self.selector(target)?,
                TokenKind::Symbol("{") if self.is_override(&target) => self.override_of(target)?,
                _ => return Ok(target),
            };
        }
    }

    fn access(&mut self, target: Expression) -> ParseResult<Expression> {
        let opened = self.span();
        self.bump();
        let keys = self.list("]", opened, "this access", Self::element)?;
        let span = target.span.to(self.last_span());
        self.new_expression(Kind::Access(Box::new(target), keys), span)
    }

    /// Reads `$x ? { a => b, default => c }`, or one `a => b` without braces.
    fn selector(&mut self, target: Expression) -> ParseResult<Expression> {
        self.bump();
        let opened = self.span();
        let options = if self.eat("{") {
            self.list("}", opened, "this selector", Self::pair)?
        } else {
            vec![self.pair()?]
        };
        let span = target.span.to(self.last_span());
        self.new_expression(Kind::Selector(Box::new(target), options), span)
    }

    pub(super) fn pair(&mut self) -> ParseResult<(Expression, Expression)> {
        let key = self.element()?;
        self.expect("=>", "after this key")?;
        let value = self.element()?;
        Ok((key, value))
    }
}
