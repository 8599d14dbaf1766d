//! Resources, their defaults, overrides and collectors.

use super::{ParseResult, Parser};
use crate::ast::{Collector, Expression, Kind, Resource, ResourceBody, ResourceForm};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Reads `type { title: … }`. The current token is the type's name.
    pub(super) fn resource(&mut self) -> ParseResult<Expression> {
        self.resource_of(ResourceForm::Regular)
    }

    pub(super) fn virtual_resource(&mut self) -> ParseResult<Expression> {
        let form = if self.is("@@") {
            ResourceForm::Exported
        } else {
            ResourceForm::Virtual
        };
        self.bump();
        match (self.kind(), self.is_at(1, "{")) {
            (TokenKind::Name(_), true) => self.resource_of(form),
            _ => Err(self.unexpected("a resource after `@`")),
        }
    }

    fn resource_of(&mut self, form: ResourceForm) -> ParseResult<Expression> {
        let span = self.span();
        let TokenKind::Name(name) = self.kind() else {
            return Err(self.unexpected("the type of a resource"));
        };
        self.bump();
        let type_name = self.new_expression(Kind::Name(name.clone()), span)?;
        self.resource_bodies(form, type_name)
    }

    fn resource_bodies(
        &mut self,
        form: ResourceForm,
        type_name: Expression,
    ) -> ParseResult<Expression> {
        let opened = self.expect("{", "after the type of this resource")?;
        let mut bodies = Vec::new();
        self.deeper(|parser| {
            parser.braces(false, |parser| {
                while !parser.is("}") && !parser.at_end() {
                    let title = parser.element()?;
                    parser.expect(":", "after the title of this resource")?;
                    let attributes = parser.attributes()?;
                    bodies.push(ResourceBody { title, attributes });
                    if !parser.eat(";") {
                        break;
                    }
                }
                parser.expect_closing("}", opened, "this resource")
            })
        })?;
        let span = type_name.span.to(self.last_span());
        let resource = Resource {
            form,
            type_name,
            bodies,
        };
        self.new_expression(Kind::Resource(Box::new(resource)), span)
    }

    /// `File { mode => '0644' }`
    pub(super) fn resource_defaults(&mut self, name: &str) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let attributes = self.attribute_block("these defaults")?;
        let span = start.to(self.last_span());
        self.new_expression(Kind::ResourceDefaults(name.to_owned(), attributes), span)
    }

    /// Returns true if the `{` after this value belongs to it.
    pub(super) fn is_override(&self, target: &Expression) -> bool {
        let Kind::Access(base, _) = &target.kind else {
            return false;
        };
        let named = matches!(base.kind, Kind::TypeName(_) | Kind::Variable(_));
        named && !self.brace_is_body
    }

    /// Reads `File['x'] { mode => '0644' }`, or `Resource[$type] { title: … }`.
    pub(super) fn override_of(&mut self, target: Expression) -> ParseResult<Expression> {
        if !self.attributes_follow(1) {
            return self.resource_bodies(ResourceForm::Regular, target);
        }
        let attributes = self.attribute_block("this override")?;
        let span = target.span.to(self.last_span());
        self.new_expression(Kind::ResourceOverride(Box::new(target), attributes), span)
    }

    /// `File <| tag == 'x' |> { … }`
    pub(super) fn collector(&mut self, name: &str) -> ParseResult<Expression> {
        let start = self.span();
        self.bump();
        let (exported, closing) = if self.is("<<|") {
            (true, "|>>")
        } else {
            (false, "|>")
        };
        let opened = self.span();
        self.bump();
        let query = self.braces(false, |parser| {
            if parser.is(closing) {
                Ok(None)
            } else {
                parser.element().map(Some)
            }
        })?;
        self.expect_closing(closing, opened, "this collector")?;
        let attributes = if self.is("{") && !self.brace_is_body {
            self.attribute_block("this override")?
        } else {
            Vec::new()
        };
        let collector = Collector {
            type_name: name.to_owned(),
            exported,
            query,
            attributes,
        };
        let span = start.to(self.last_span());
        self.new_expression(Kind::Collector(Box::new(collector)), span)
    }
}
