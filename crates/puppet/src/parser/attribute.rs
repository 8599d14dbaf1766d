//! `name => value` in resources, overrides, collectors and mappings.

use super::{ParseResult, Parser};
use crate::ast::{Attribute, AttributeOperator};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Reads attributes up to `}` or `;`, which is not consumed.
    pub(super) fn attributes(&mut self) -> ParseResult<Vec<Attribute>> {
        let mut attributes = Vec::new();
        while !self.is("}") && !self.is(";") && !self.at_end() {
            attributes.push(self.attribute()?);
            if !self.eat(",") {
                break;
            }
        }
        Ok(attributes)
    }

    /// Reads `{ … }` with attributes only.
    pub(super) fn attribute_block(&mut self, what: &str) -> ParseResult<Vec<Attribute>> {
        let opened = self.expect("{", &format!("at the start of {what}"))?;
        self.braces(false, |parser| {
            let attributes = parser.attributes()?;
            parser.expect_closing("}", opened, what)?;
            Ok(attributes)
        })
    }

    fn attribute(&mut self) -> ParseResult<Attribute> {
        let span = self.span();
        let name = match self.kind() {
            TokenKind::Name(name) => name.clone(),
            TokenKind::String(name) => name.clone(),
            TokenKind::Symbol("*") => "*".to_owned(),
            _ => return Err(self.unexpected("the name of a parameter")),
        };
        self.bump();
        let operator = match self.kind() {
            TokenKind::Symbol("=>") if name == "*" => AttributeOperator::Splat,
            TokenKind::Symbol("=>") => AttributeOperator::Set,
            TokenKind::Symbol("+>") => AttributeOperator::Add,
            _ => return Err(self.unexpected(&format!("`=>` after `{name}`"))),
        };
        self.bump();
        let value = self.element()?;
        Ok(Attribute {
            name,
            span,
            operator,
            value,
        })
    }

    /// Returns true if attributes, not titles, follow the `{` at this distance.
    pub(super) fn attributes_follow(&self, ahead: usize) -> bool {
        self.is_at(ahead, "}") || matches!(self.kind_at(ahead + 1), TokenKind::Symbol("=>" | "+>"))
    }
}
