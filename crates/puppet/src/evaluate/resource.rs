//! Resources that code declares.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{EvalResult, Evaluator, error};
use crate::ast::{Attribute, AttributeOperator, Expression, Kind, Resource, ResourceForm};
use crate::diagnostic::Diagnostic;
use crate::reference::Reference;
use crate::source::Span;
use crate::value::Value;

/// A resource with its parameters, and the location of each.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredResource {
    pub(crate) reference: Reference,
    pub(crate) attributes: IndexMap<String, (Value, Span)>,
    pub(crate) span: Span,
}

/// An order set by an arrow: `Db['a'] -> Web['a']`.
#[derive(Clone, Debug)]
pub(crate) struct Arrow {
    pub(crate) first: Vec<Reference>,
    pub(crate) then: Vec<Reference>,
    pub(crate) span: Span,
}

/// Returns the references in a value: one, none, or a list of them.
pub(crate) fn references_in(value: &Value, what: &str, span: Span) -> EvalResult<Vec<Reference>> {
    match value {
        Value::Reference(reference) => Ok(vec![(**reference).clone()]),
        Value::Undef => Ok(Vec::new()),
        Value::Array(list) => {
            let mut all = Vec::with_capacity(list.items.len());
            for item in &list.items {
                all.extend(references_in(item, what, span)?);
            }
            Ok(all)
        }
        other => error(
            format!(
                "{what} takes resources such as `Sql['x']`, not {}",
                other.kind()
            ),
            span,
        ),
    }
}

impl Evaluator<'_> {
    pub(super) fn resource(&mut self, resource: &Resource, span: Span) -> EvalResult {
        if resource.form != ResourceForm::Regular {
            return error("virtual and exported resources are not allowed here", span);
        }
        let type_name = self.resource_type(&resource.type_name)?;
        let mut references = Vec::new();
        let mut defaults: IndexMap<String, (Value, Span)> = IndexMap::new();
        for body in &resource.bodies {
            let title = self.value(&body.title)?;
            let mut attributes = self.attributes(&body.attributes)?;
            if title == Value::Default {
                defaults = attributes;
                continue;
            }
            for (name, value) in &defaults {
                attributes
                    .entry(name.clone())
                    .or_insert_with(|| value.clone());
            }
            for title in self.titles(title, body.title.span)? {
                let reference = Reference::new(&type_name, title);
                references.push(Value::Reference(Arc::new(reference.clone())));
                self.work(attributes.len() + 1, span)?;
                self.sized(self.declared.len(), span)?;
                self.declared.push(DeclaredResource {
                    reference,
                    attributes: attributes.clone(),
                    span: resource.type_name.span.to(body.title.span),
                });
            }
        }
        self.array(references, span)
    }

    fn resource_type(&mut self, expression: &Expression) -> EvalResult<String> {
        if let Kind::Name(name) = &expression.kind {
            return Ok(name.clone());
        }
        match self.value(expression)? {
            Value::Type(of) => Ok(of.to_string()),
            other => error(
                format!("a resource needs a type, not {}", other.kind()),
                expression.span,
            ),
        }
    }

    fn titles(&mut self, title: Value, span: Span) -> EvalResult<Vec<String>> {
        let text = |value: &Value| match value {
            Value::String(text) if text.is_empty() => error("a title cannot be empty", span),
            Value::String(text) => Ok(text.to_string()),
            Value::Integer(number) => Ok(number.to_string()),
            other => error(
                format!("a title must be a string, not {}", other.kind()),
                span,
            ),
        };
        match &title {
            Value::Array(list) => list.items.iter().map(text).collect(),
            title => Ok(vec![text(title)?]),
        }
    }

    /// Evaluates attributes, each with its location.
    pub(crate) fn attributes(
        &mut self,
        list: &[Attribute],
    ) -> EvalResult<IndexMap<String, (Value, Span)>> {
        let mut attributes = IndexMap::with_capacity(list.len());
        for attribute in list {
            let value = self.value(&attribute.value)?;
            let place = attribute.value.span;
            match attribute.operator {
                AttributeOperator::Set => {
                    self.set_attribute(
                        &mut attributes,
                        &attribute.name,
                        value,
                        place,
                        attribute.span,
                    )?;
                }
                AttributeOperator::Splat => {
                    let Value::Hash(table) = value else {
                        return error("`* =>` takes a hash", place);
                    };
                    for (key, value) in &table.entries {
                        let name = key.to_string();
                        self.set_attribute(
                            &mut attributes,
                            &name,
                            value.clone(),
                            place,
                            attribute.span,
                        )?;
                    }
                }
                AttributeOperator::Add => {
                    return error("`+>` is only allowed in an override", attribute.span);
                }
            }
        }
        Ok(attributes)
    }

    fn set_attribute(
        &mut self,
        attributes: &mut IndexMap<String, (Value, Span)>,
        name: &str,
        value: Value,
        place: Span,
        name_span: Span,
    ) -> EvalResult<()> {
        if let Some((_, earlier)) = attributes.get(name) {
            return Err(Diagnostic::new(format!("`{name}` is set twice"), name_span)
                .also(*earlier, "first set here")
                .into());
        }
        attributes.insert(name.to_owned(), (value, place));
        Ok(())
    }
}
