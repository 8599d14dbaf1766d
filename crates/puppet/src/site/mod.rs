//! Sites: applications, their components, and the values that these pass to each other.
//!
//! `site { }` declares applications. An application's body declares components. `export` and
//! `consume` connect them through capabilities. `nodes` maps each component to its node. The result
//! names everything with its location and leaves it to the plan to judge the whole: capabilities
//! with two producers or none, and components that run nowhere.
//!
//! Outside of `site`, only assignments are evaluated: the rest is code for catalogs of nodes.

mod application;
mod facts;
mod node_map;
mod order;
mod values;

use std::collections::HashMap;

use bunraku_model::Excerpt;
use indexmap::IndexMap;

use crate::ast::{Expression, Kind};
use crate::diagnostic::{Diagnostic, PuppetError};
use crate::evaluate::{DeclaredResource, EvalResult, Evaluator, Role};
use crate::limits::Limits;
use crate::reference::Reference;
use crate::source::{Sources, Span};
use crate::value::Value;
use crate::world::World;

/// All declarations of the sites in some files.
#[derive(Clone, Debug)]
pub struct Site {
    pub applications: Vec<Application>,
    /// Notes: messages of the code, variables without a value.
    pub notes: Vec<String>,
}

/// One instance of an application.
#[derive(Clone, Debug)]
pub struct Application {
    pub reference: Reference,
    pub place: Excerpt,
    pub components: Vec<Component>,
}

/// One component of an application.
#[derive(Clone, Debug)]
pub struct Component {
    pub reference: Reference,
    pub place: Excerpt,
    /// The nodes on which it runs, from `nodes`: exactly one if the site is valid.
    pub nodes: Vec<Located<String>>,
    pub produces: Vec<Located<Reference>>,
    pub consumes: Vec<Located<Reference>>,
    /// Capabilities that come first, without their values: `require => Http['x']`.
    pub requires: Vec<Located<Reference>>,
    /// Components that come first: `require`, `before`, arrows.
    pub waits_for: Vec<Located<Reference>>,
    /// The parameters, including defaults and values from capabilities.
    pub parameters: IndexMap<String, Value>,
    /// The capabilities that it passes to its consumers.
    pub capabilities: Vec<Capability>,
}

/// A name and its location.
#[derive(Clone, PartialEq, Debug)]
pub struct Located<T> {
    pub name: T,
    pub place: Excerpt,
}

/// A capability with its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Capability {
    pub reference: Reference,
    pub values: IndexMap<String, Value>,
}

/// Reads files (name and text) and evaluates the sites in them.
pub fn evaluate_site(
    files: &[(String, String)],
    world: &dyn World,
    limits: &Limits,
) -> Result<Site, PuppetError> {
    let mut sources = Sources::default();
    let mut statements = Vec::new();
    for (name, text) in files {
        let file = sources.add(name, text);
        match crate::parse(&sources, file, limits) {
            Ok(parsed) => statements.extend(parsed),
            Err(diagnostic) => return Err(PuppetError::new(diagnostic, &sources)),
        }
    }
    let mut evaluator = Evaluator::new(sources, limits.clone(), world);
    let site = evaluator.site(&statements);
    site.map_err(|stop| PuppetError::new(stop.diagnostic(), &evaluator.sources))
}

/// A component before its values are known.
struct Part {
    reference: Reference,
    span: Span,
    attributes: IndexMap<String, (Value, Span)>,
    nodes: Vec<(String, Span)>,
    produces: Vec<(Reference, Span)>,
    consumes: Vec<(Reference, Span)>,
    order: order::Order,
    requires: Vec<(Reference, Span)>,
    waits_for: Vec<(Reference, Span)>,
    /// Its values, once known.
    parameters: IndexMap<String, Value>,
    capabilities: Vec<Capability>,
}

struct Instance {
    reference: Reference,
    span: Span,
    order: order::Order,
    parts: Vec<Part>,
}

impl Evaluator<'_> {
    fn site(&mut self, statements: &[Expression]) -> EvalResult<Site> {
        self.definitions.collect(statements)?;
        let environment = Value::text(self.world.environment());
        self.scopes.set("environment", environment);
        for statement in statements {
            if let Kind::Assign(..) = statement.kind {
                self.value(statement)?;
            }
        }
        for statement in statements {
            if let Kind::Site(body) = &statement.kind {
                self.scopes.push(false);
                let outcome = self.all(body);
                self.scopes.pop();
                outcome?;
            }
        }
        let declared = std::mem::take(&mut self.declared);
        let mut instances = self.instances(declared)?;
        self.apply_order(&mut instances)?;
        self.fill_values(&mut instances)?;
        Ok(self.finished(instances))
    }

    fn instances(&mut self, declared: Vec<DeclaredResource>) -> EvalResult<Vec<Instance>> {
        let mut seen: HashMap<Reference, Span> = HashMap::new();
        let mut instances = Vec::with_capacity(declared.len());
        for one in declared {
            declared_once(&mut seen, &one)?;
            let name = crate::reference::lower(&one.reference.type_name);
            let Some(definition) = self.definition(Role::Application, &name, one.span)? else {
                return Err(self.no_application(&name, one.span).into());
            };
            let instance = self.instance(&definition, one, &mut seen)?;
            instances.push(instance);
        }
        Ok(instances)
    }

    fn no_application(&mut self, name: &str, span: Span) -> Diagnostic {
        let problem = Diagnostic::new(format!("no application `{name}`"), span);
        let known: Vec<String> = self.definitions.applications().map(str::to_owned).collect();
        let problem = problem.near(name, known.iter().map(String::as_str));
        match problem.hint {
            Some(_) => problem,
            None => problem.hint(
                "also pass the file that defines it, or the directory of its module with `--modulepath`",
            ),
        }
    }

    fn finished(&self, instances: Vec<Instance>) -> Site {
        let place = |span| self.sources.excerpt(span);
        let named = |list: Vec<(Reference, Span)>| {
            let one = |(name, span)| Located {
                name,
                place: place(span),
            };
            list.into_iter().map(one).collect()
        };
        let component = |part: Part| Component {
            reference: part.reference,
            place: place(part.span),
            nodes: part
                .nodes
                .into_iter()
                .map(|(name, span)| Located {
                    name,
                    place: place(span),
                })
                .collect(),
            produces: named(part.produces),
            consumes: named(part.consumes),
            requires: named(part.requires),
            waits_for: named(part.waits_for),
            parameters: part.parameters,
            capabilities: part.capabilities,
        };
        let applications = instances.into_iter().map(|instance| Application {
            reference: instance.reference,
            place: place(instance.span),
            components: instance.parts.into_iter().map(component).collect(),
        });
        Site {
            applications: applications.collect(),
            notes: self
                .notes
                .iter()
                .map(|note| note.render(&self.sources))
                .collect(),
        }
    }
}

fn declared_once(seen: &mut HashMap<Reference, Span>, one: &DeclaredResource) -> EvalResult<()> {
    match seen.insert(one.reference.clone(), one.span) {
        None => Ok(()),
        Some(earlier) => {
            let message = format!("`{}` is declared twice", one.reference);
            Err(Diagnostic::new(message, one.span)
                .label("second declaration")
                .also(earlier, "first declared here")
                .into())
        }
    }
}
