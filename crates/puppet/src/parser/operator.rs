//! The binding strength of operators.

use super::Parser;
use crate::ast::{Assignment, BinaryOperator};
use crate::lexer::TokenKind;

/// Operands of `!`, `-` and `*` bind tighter than every infix operator.
pub(super) const UNARY: u8 = 90;
/// The strength of assignments; chains bind less strongly. Lists and attributes stop above it.
pub(super) const ASSIGNMENT: u8 = 20;
const CHAIN: u8 = 10;

pub(super) enum Infix {
    Binary(BinaryOperator),
    Assign(Assignment),
}

/// Returns an infix operator with its binding strength.
pub(super) fn infix(parser: &Parser<'_>) -> Option<(Infix, u8)> {
    use BinaryOperator as Op;
    let (operator, strength) = match parser.kind() {
        TokenKind::Name(word) => match word.as_str() {
            "in" => (Op::In, 80),
            "and" => (Op::And, 45),
            "or" => (Op::Or, 40),
            _ => return None,
        },
        TokenKind::Symbol(symbol) => match *symbol {
            "=~" => (Op::Match, 75),
            "!~" => (Op::NoMatch, 75),
            "*" => (Op::Multiply, 70),
            "/" => (Op::Divide, 70),
            "%" => (Op::Modulo, 70),
            "+" => (Op::Add, 65),
            "-" => (Op::Subtract, 65),
            "<<" => (Op::ShiftLeft, 60),
            ">>" => (Op::ShiftRight, 60),
            "==" => (Op::Equal, 55),
            "!=" => (Op::NotEqual, 55),
            "<" => (Op::Less, 50),
            "<=" => (Op::LessEqual, 50),
            ">" => (Op::Greater, 50),
            ">=" => (Op::GreaterEqual, 50),
            "->" => (Op::Before, CHAIN),
            "~>" => (Op::Notify, CHAIN),
            "<-" => (Op::Require, CHAIN),
            "<~" => (Op::Subscribe, CHAIN),
            "=" => return Some((Infix::Assign(Assignment::Set), ASSIGNMENT)),
            "+=" => return Some((Infix::Assign(Assignment::Append), ASSIGNMENT)),
            "-=" => return Some((Infix::Assign(Assignment::Delete), ASSIGNMENT)),
            _ => return None,
        },
        _ => return None,
    };
    Some((Infix::Binary(operator), strength))
}
