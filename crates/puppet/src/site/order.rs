//! Order without values: `require`, `subscribe`, `before`, `notify` and arrows.
//!
//! Each names components, capabilities or whole applications. A capability stands for the component
//! that exports it, an application for all of its components. Undeclared requirements stay in the
//! result: the plan reports them together with everything else that is missing.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::Instance;
use super::application::take_references;
use crate::diagnostic::Diagnostic;
use crate::evaluate::{Arrow, EvalResult, Evaluator};
use crate::reference::Reference;
use crate::source::Span;
use crate::value::Value;

/// The order from the attributes of one component or application.
#[derive(Default)]
pub(super) struct Order {
    /// `require`, `subscribe`: these come first.
    after: Vec<(Reference, Span)>,
    /// `before`, `notify`: these come later.
    before: Vec<(Reference, Span)>,
}

impl Order {
    /// Removes them from the attributes.
    pub(super) fn of(attributes: &mut IndexMap<String, (Value, Span)>) -> EvalResult<Self> {
        let mut order = Self::default();
        for name in ["require", "subscribe"] {
            order.after.extend(take_references(attributes, name)?);
        }
        for name in ["before", "notify"] {
            order.before.extend(take_references(attributes, name)?);
        }
        Ok(order)
    }
}

/// A component by its indices: application and component.
type PartAt = (usize, usize);

/// The meaning of the site's references.
struct ReferenceTable {
    components: HashMap<Reference, Vec<PartAt>>,
    producers: HashMap<Reference, PartAt>,
}

impl ReferenceTable {
    fn of(instances: &[Instance]) -> Self {
        let mut known = Self {
            components: HashMap::new(),
            producers: HashMap::new(),
        };
        for (at, instance) in instances.iter().enumerate() {
            let all = (0..instance.parts.len()).map(|part| (at, part)).collect();
            known.components.insert(instance.reference.clone(), all);
            for (place, part) in instance.parts.iter().enumerate() {
                let itself = vec![(at, place)];
                known.components.insert(part.reference.clone(), itself);
                for (capability, _) in &part.produces {
                    let first = known.producers.entry(capability.clone());
                    first.or_insert((at, place));
                }
            }
        }
        known
    }

    /// Returns the components that a reference stands for.
    fn parts(&self, reference: &Reference) -> Option<Vec<PartAt>> {
        let producer = || self.producers.get(reference).map(|part| vec![*part]);
        self.components.get(reference).cloned().or_else(producer)
    }
}

impl Evaluator<'_> {
    /// Sets the components that each component waits for.
    pub(super) fn apply_order(&mut self, instances: &mut [Instance]) -> EvalResult<()> {
        let known = ReferenceTable::of(instances);
        for arrow in arrows_from_attributes(instances)
            .into_iter()
            .chain(self.arrows.drain(..))
        {
            for then in &arrow.then {
                let Some(waiting) = known.parts(then) else {
                    return Err(undeclared(then, arrow.span, &known).into());
                };
                for (at, place) in waiting {
                    for first in &arrow.first {
                        wait(instances, &known, (at, place), first, arrow.span);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the attributes of all components and applications as arrows.
fn arrows_from_attributes(instances: &mut [Instance]) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let mut add = |order: Order, of: &Reference| {
        for (first, span) in order.after {
            arrows.push(Arrow {
                first: vec![first],
                then: vec![of.clone()],
                span,
            });
        }
        for (then, span) in order.before {
            arrows.push(Arrow {
                first: vec![of.clone()],
                then: vec![then],
                span,
            });
        }
    };
    for instance in instances {
        add(std::mem::take(&mut instance.order), &instance.reference);
        for part in &mut instance.parts {
            add(std::mem::take(&mut part.order), &part.reference);
        }
    }
    arrows
}

/// Makes one component wait for everything that a reference stands for.
fn wait(
    instances: &mut [Instance],
    known: &ReferenceTable,
    (at, place): PartAt,
    first: &Reference,
    span: Span,
) {
    let Some(parts) = known.components.get(first) else {
        // A capability, or something that the site does not declare: the plan reports it.
        instances[at].parts[place]
            .requires
            .push((first.clone(), span));
        return;
    };
    for (other, there) in parts.iter().filter(|part| **part != (at, place)) {
        let name = instances[*other].parts[*there].reference.clone();
        instances[at].parts[place].waits_for.push((name, span));
    }
}

fn undeclared(reference: &Reference, span: Span, known: &ReferenceTable) -> Diagnostic {
    let message = format!("the site neither declares nor exports `{reference}`");
    let names: Vec<String> = known
        .components
        .keys()
        .chain(known.producers.keys())
        .map(ToString::to_string)
        .collect();
    Diagnostic::new(message, span).near(&reference.to_string(), names.iter().map(String::as_str))
}
