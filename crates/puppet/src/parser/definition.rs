//! Classes, defines, applications, functions, nodes, sites and mappings.
//!
//! None of these words is reserved everywhere: `class { 'x': }` is a resource, and `site` may be a
//! name. So each rule looks at the next tokens.

use super::{ParseResult, Parser};
use crate::ast::{Definition, Expression, Kind, Mapping, MappingKind, NodeDefinition};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn definition(&mut self) -> ParseResult<Option<Expression>> {
        let word = match self.kind() {
            TokenKind::Name(word) => word.as_str(),
            TokenKind::TypeName(_) => return self.mapping(),
            _ => return Ok(None),
        };
        let named = matches!(self.kind_at(1), TokenKind::Name(_));
        let definition = match word {
            "class" if named => self.defined("class", Kind::Class)?,
            "define" if named => self.defined("define", Kind::Define)?,
            "application" if named => self.defined("application", Kind::Application)?,
            "function" if named => self.defined("function", Kind::Function)?,
            "plan" if named => self.defined("plan", Kind::Plan)?,
            "type" if matches!(self.kind_at(1), TokenKind::TypeName(_)) => self.type_alias()?,
            "node" if self.node_follows() => self.node()?,
            "site" if self.is_at(1, "{") => self.site()?,
            _ => return Ok(None),
        };
        Ok(Some(definition))
    }

    fn defined(
        &mut self,
        what: &str,
        kind: impl FnOnce(Box<Definition>) -> Kind,
    ) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let name_span = self.span();
        let TokenKind::Name(name) = self.kind() else {
            return Err(self.unexpected(&format!("the name of this {what}")));
        };
        self.bump();
        let parameters = self.parameters()?;
        let parent = if self.eat_word("inherits") {
            Some(self.parent()?)
        } else {
            None
        };
        // `class a inherits b (…)` was never valid, so the order is fixed.
        let returns = if self.eat(">>") {
            Some(self.type_expression()?)
        } else {
            None
        };
        let body = self.body(&format!("this {what}"))?;
        let definition = Definition {
            name: name.strip_prefix("::").unwrap_or(name).to_owned(),
            name_span,
            parameters,
            parent,
            returns,
            body,
        };
        self.new_expression(kind(Box::new(definition)), start.to(self.last_span()))
    }

    fn parent(&mut self) -> ParseResult<String> {
        let TokenKind::Name(parent) = self.kind() else {
            return Err(self.unexpected("the name of a class after `inherits`"));
        };
        self.bump();
        Ok(parent.clone())
    }

    fn type_alias(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let TokenKind::TypeName(name) = self.kind() else {
            return Err(self.unexpected("the name of this type"));
        };
        self.bump();
        self.expect("=", "after the name of this type")?;
        let aliased = self.type_expression()?;
        let span = start.to(aliased.span);
        self.new_expression(Kind::TypeAlias(name.clone(), Box::new(aliased)), span)
    }

    fn node_follows(&self) -> bool {
        matches!(
            self.kind_at(1),
            TokenKind::String(_)
                | TokenKind::Interpolated(_)
                | TokenKind::Regex(_)
                | TokenKind::Name(_)
                | TokenKind::Integer(_)
        )
    }

    fn node(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let mut matches = vec![self.node_name()?];
        while self.eat(",") && !self.is("{") {
            matches.push(self.node_name()?);
        }
        let parent = if self.eat_word("inherits") {
            Some(self.node_name()?)
        } else {
            None
        };
        let body = self.body("this node")?;
        let node = NodeDefinition {
            matches,
            parent,
            body,
        };
        self.new_expression(Kind::Node(Box::new(node)), start.to(self.last_span()))
    }

    /// Reads a string, a regular expression, `default`, or bare words with dots.
    fn node_name(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        let piece = |kind: &TokenKind| match kind {
            TokenKind::Name(word) => Some(word.clone()),
            TokenKind::Integer(number) => Some(number.to_string()),
            _ => None,
        };
        let Some(mut name) = piece(self.kind()) else {
            return self.braces(true, Self::primary);
        };
        self.bump();
        while self.is(".") {
            let Some(next) = piece(self.kind_at(1)) else {
                break;
            };
            name = format!("{name}.{next}");
            self.bump();
            self.bump();
        }
        let kind = match name.as_str() {
            "default" => Kind::Default,
            _ => Kind::String(name),
        };
        self.new_expression(kind, start.to(self.last_span()))
    }

    fn site(&mut self) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let body = self.body("this site")?;
        self.new_expression(Kind::Site(body), start.to(self.last_span()))
    }

    /// Reads `Lamp::Mysql produces Sql { … }`, or `Class[lamp] produces Sql { … }`.
    fn mapping(&mut self) -> ParseResult<Option<Expression>> {
        let TokenKind::TypeName(component) = self.kind() else {
            return Ok(None);
        };
        let (component, length) = match self.class_reference(component) {
            Some(class) => (class, 4),
            None => (component.clone(), 1),
        };
        let kind = match self.kind_at(length) {
            TokenKind::Name(word) if word == "produces" => MappingKind::Produces,
            TokenKind::Name(word) if word == "consumes" => MappingKind::Consumes,
            _ => return Ok(None),
        };
        let start = self.span();
        for _ in 0..=length {
            self.bump();
        }
        let TokenKind::TypeName(capability) = self.kind() else {
            return Err(self.unexpected("the type of a capability, like `Sql`"));
        };
        self.bump();
        let attributes = self.attribute_block("this mapping")?;
        let mapping = Mapping {
            kind,
            component,
            capability: capability.clone(),
            attributes,
        };
        let span = start.to(self.last_span());
        self.new_expression(Kind::Mapping(Box::new(mapping)), span)
            .map(Some)
    }

    /// Returns the class in `Class[lamp]`, if the current tokens form one.
    fn class_reference(&self, word: &str) -> Option<String> {
        if word != "Class" || !self.is_at(1, "[") || !self.is_at(3, "]") {
            return None;
        }
        match self.kind_at(2) {
            TokenKind::Name(name) | TokenKind::TypeName(name) | TokenKind::String(name) => {
                Some(name.clone())
            }
            _ => None,
        }
    }
}
