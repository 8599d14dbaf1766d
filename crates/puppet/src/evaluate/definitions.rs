//! The definitions of the code, by name. Definitions are loaded on demand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{EvalResult, Evaluator, error};
use crate::ast::{Definition, Expression, Kind, Mapping, MappingKind};
use crate::diagnostic::Diagnostic;
use crate::reference::lower;
use crate::source::Span;

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Role {
    Application,
    Define,
    Class,
    Function,
    Plan,
}

#[derive(Default)]
pub(crate) struct Definitions {
    named: HashMap<(Role, String), (Arc<Definition>, Span)>,
    aliases: HashMap<String, Arc<Expression>>,
    mappings: HashMap<(MappingRole, String, String), (Arc<Mapping>, Span)>,
    /// The names that were already requested from the world.
    asked: HashSet<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum MappingRole {
    Produces,
    Consumes,
}

fn role(kind: MappingKind) -> MappingRole {
    match kind {
        MappingKind::Produces => MappingRole::Produces,
        MappingKind::Consumes => MappingRole::Consumes,
    }
}

impl Definitions {
    pub(crate) fn applications(&self) -> impl Iterator<Item = &str> {
        self.named
            .keys()
            .filter(|(role, _)| *role == Role::Application)
            .map(|(_, name)| name.as_str())
    }

    fn insert(
        &mut self,
        role: Role,
        definition: &Definition,
        span: Span,
    ) -> Result<(), Diagnostic> {
        let key = (role, lower(&definition.name));
        if let Some((earlier, _)) = self.named.get(&key) {
            let message = format!("`{}` is defined twice", definition.name);
            return Err(Diagnostic::new(message, definition.name_span)
                .label("second definition")
                .also(earlier.name_span, "first defined here"));
        }
        self.named.insert(key, (Arc::new(definition.clone()), span));
        Ok(())
    }

    /// Adds the definitions in these statements, including nested ones.
    pub(crate) fn collect(&mut self, statements: &[Expression]) -> Result<(), Diagnostic> {
        for statement in statements {
            let span = statement.span;
            match &statement.kind {
                Kind::Application(one) => self.insert(Role::Application, one, span)?,
                Kind::Define(one) => self.insert(Role::Define, one, span)?,
                Kind::Function(one) => self.insert(Role::Function, one, span)?,
                Kind::Plan(one) => self.insert(Role::Plan, one, span)?,
                Kind::Class(one) => {
                    self.insert(Role::Class, one, span)?;
                    self.collect(&one.body)?;
                }
                Kind::TypeAlias(name, of) => {
                    self.aliases.insert(lower(name), Arc::new((**of).clone()));
                }
                Kind::Mapping(mapping) => self.insert_mapping(mapping, span)?,
                Kind::Site(body) => self.collect(body)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn insert_mapping(&mut self, mapping: &Mapping, span: Span) -> Result<(), Diagnostic> {
        let key = (
            role(mapping.kind),
            lower(&mapping.component),
            lower(&mapping.capability),
        );
        if let Some((_, earlier)) = self.mappings.get(&key) {
            let word = match mapping.kind {
                MappingKind::Produces => "produces",
                MappingKind::Consumes => "consumes",
            };
            let message = format!(
                "the mapping by which `{}` {word} `{}` is defined twice",
                mapping.component, mapping.capability
            );
            return Err(Diagnostic::new(message, span)
                .label("second definition")
                .also(*earlier, "first defined here"));
        }
        self.mappings.insert(key, (Arc::new(mapping.clone()), span));
        Ok(())
    }
}

impl Evaluator<'_> {
    /// Returns a definition by name. Loads it from the world if needed.
    pub(crate) fn definition(
        &mut self,
        role: Role,
        name: &str,
        span: Span,
    ) -> EvalResult<Option<Arc<Definition>>> {
        let key = (role, lower(name));
        for file in self_and_parents(&key.1) {
            if self.definitions.named.contains_key(&key) {
                break;
            }
            self.load(file, span)?;
        }
        Ok(self
            .definitions
            .named
            .get(&key)
            .map(|(definition, _)| definition.clone()))
    }

    pub(crate) fn alias(&mut self, name: &str, span: Span) -> EvalResult<Option<Arc<Expression>>> {
        let key = lower(name);
        if !self.definitions.aliases.contains_key(&key) {
            self.load(&key, span)?;
        }
        Ok(self.definitions.aliases.get(&key).cloned())
    }

    /// Returns the mapping between a component's parameters and a capability's attributes.
    pub(crate) fn mapping(
        &mut self,
        kind: MappingKind,
        component: &str,
        capability: &str,
        span: Span,
    ) -> EvalResult<Option<Arc<Mapping>>> {
        let key = (role(kind), lower(component), lower(capability));
        for file in self_and_parents(&key.1) {
            if self.definitions.mappings.contains_key(&key) {
                break;
            }
            self.load(file, span)?;
        }
        Ok(self
            .definitions
            .mappings
            .get(&key)
            .map(|(mapping, _)| mapping.clone()))
    }

    fn load(&mut self, name: &str, span: Span) -> EvalResult<()> {
        if !self.definitions.asked.insert(name.to_owned()) {
            return Ok(());
        }
        let (file_name, text) = match self.world.autoload(name) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(problem) => return error(problem.to_string(), span),
        };
        let file = self.sources.add(&file_name, &text);
        let statements = crate::parse(&self.sources, file, &self.limits)?;
        Ok(self.definitions.collect(&statements)?)
    }
}

/// Returns the names whose files may define `a::b::c`: itself, `a::b`, and `a`, which is the
/// module's `init.pp`.
fn self_and_parents(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| {
        name.rsplit_once("::").map(|(parent, _)| parent)
    })
}
