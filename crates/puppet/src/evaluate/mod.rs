//! Evaluates expressions.
//!
//! It computes values only: nothing here reads a file or changes a machine. Resources that code
//! declares are collected in [`Evaluator::declared`]; the caller decides what they mean.

mod access;
mod assign;
mod bind;
mod compare;
mod definitions;
mod expression;
mod functions;
mod operators;
mod resource;
mod scope;
mod type_of;

use std::sync::Arc;

use crate::ast::{Expression, Lambda};
use crate::diagnostic::Diagnostic;
use crate::limits::Limits;
use crate::source::{Sources, Span};
use crate::value::{Hash, Value};
use crate::world::World;
pub(crate) use compare::{equal, order};
pub(crate) use definitions::{Definitions, Role};
pub(crate) use resource::{Arrow, DeclaredResource, references_in};
pub(crate) use scope::Scopes;

/// The reason why an expression has no value.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Box<Diagnostic>),
    /// `next(value)` in a lambda.
    Next(Value, Span),
    /// `break()` in a lambda.
    Break(Span),
    /// `return(value)` in a function.
    Return(Value, Span),
}

impl From<Diagnostic> for Stop {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Error(Box::new(diagnostic))
    }
}

impl Stop {
    /// Returns the problem if nothing catches a `next` or `return`.
    pub(crate) fn diagnostic(self) -> Diagnostic {
        let outside =
            |word: &str, span| Diagnostic::new(format!("`{word}` is not allowed here"), span);
        match self {
            Self::Error(diagnostic) => *diagnostic,
            Self::Next(_, span) => outside("next", span),
            Self::Break(span) => outside("break", span),
            Self::Return(_, span) => outside("return", span),
        }
    }
}

pub(crate) type EvalResult<T = Value> = Result<T, Stop>;

pub(crate) fn error<T>(message: impl Into<String>, span: Span) -> EvalResult<T> {
    Err(Diagnostic::new(message, span).into())
}

pub(crate) struct Evaluator<'w> {
    pub(crate) sources: Sources,
    pub(crate) limits: Limits,
    pub(crate) world: &'w dyn World,
    pub(crate) definitions: Definitions,
    pub(crate) scopes: Scopes,
    /// The resources in the order of their declaration.
    pub(crate) declared: Vec<DeclaredResource>,
    /// The order that arrows set, in the order of evaluation.
    pub(crate) arrows: Vec<Arrow>,
    /// The current evaluation affects only values, not the set of components or their order.
    pub(crate) filling: bool,
    /// Values may be missing because facts are unknown: `undef` fits everywhere.
    pub(crate) lenient: bool,
    /// A value was missing for this reason.
    pub(crate) missed_facts: bool,
    pub(crate) notes: Vec<Diagnostic>,
    steps: u64,
    depth: usize,
}

impl<'w> Evaluator<'w> {
    pub(crate) fn new(sources: Sources, limits: Limits, world: &'w dyn World) -> Self {
        Self {
            sources,
            limits,
            world,
            definitions: Definitions::default(),
            scopes: Scopes::default(),
            declared: Vec::new(),
            arrows: Vec::new(),
            filling: false,
            lenient: false,
            missed_facts: false,
            notes: Vec::new(),
            steps: 0,
            depth: 0,
        }
    }

    /// Evaluates statements in order. The value is that of the last one.
    pub(crate) fn all(&mut self, statements: &[Expression]) -> EvalResult {
        let mut value = Value::Undef;
        for statement in statements {
            value = self.value(statement)?;
        }
        Ok(value)
    }

    /// Runs `work` one level deeper.
    fn deeper<T>(
        &mut self,
        span: Span,
        work: impl FnOnce(&mut Self) -> EvalResult<T>,
    ) -> EvalResult<T> {
        // Calls nest expressions of their own: allow three times the depth of one expression.
        if self.depth >= self.limits.depth * 3 {
            return Err(Diagnostic::new("calls are nested too deeply", span)
                .hint("is there an endless recursion?")
                .into());
        }
        self.depth += 1;
        let outcome = work(self);
        self.depth -= 1;
        outcome
    }

    /// Counts work, and stops code that does not end.
    pub(crate) fn work(&mut self, amount: usize, span: Span) -> EvalResult<()> {
        self.steps = self.steps.saturating_add(amount as u64);
        if self.steps > self.limits.steps {
            error("this code takes too long", span)
        } else {
            Ok(())
        }
    }

    pub(crate) fn array(&mut self, items: Vec<Value>, span: Span) -> EvalResult {
        self.work(items.len(), span)?;
        self.sized(items.len(), span)?;
        self.shallow(Value::list(items), span)
    }

    pub(crate) fn hash(&mut self, entries: Hash, span: Span) -> EvalResult {
        self.work(entries.len(), span)?;
        self.sized(entries.len(), span)?;
        self.shallow(Value::table(entries), span)
    }

    pub(crate) fn sized(&self, length: usize, span: Span) -> EvalResult<()> {
        if length > self.limits.elements {
            error(
                format!(
                    "a collection has more than {} elements",
                    self.limits.elements
                ),
                span,
            )
        } else {
            Ok(())
        }
    }

    pub(crate) fn shallow(&self, value: Value, span: Span) -> EvalResult {
        if value.depth() > self.limits.depth {
            error("a value is nested too deeply", span)
        } else {
            Ok(value)
        }
    }

    pub(crate) fn string(&mut self, text: String, span: Span) -> EvalResult {
        self.work(text.len() / 64, span)?;
        if text.len() > self.limits.string_bytes {
            error("a string is too long", span)
        } else {
            Ok(Value::text(text))
        }
    }

    /// Appends the text of a value to a string.
    pub(crate) fn append(&mut self, out: &mut String, value: &Value, span: Span) -> EvalResult<()> {
        let before = out.len();
        if !value.write_bounded(out, self.limits.string_bytes) {
            return error("a string is too long", span);
        }
        self.work((out.len() - before) / 64 + 1, span)
    }

    /// Calls a lambda. `next` sets its value.
    pub(crate) fn call_lambda(&mut self, lambda: &Lambda, arguments: Vec<Value>) -> EvalResult {
        self.deeper(lambda.span, |evaluator| {
            evaluator.scopes.push(false);
            let outcome = evaluator
                .bind(&lambda.parameters, arguments, lambda.span, "this lambda")
                .and_then(|()| evaluator.all(&lambda.body));
            evaluator.scopes.pop();
            match outcome {
                Err(Stop::Next(value, _)) => Ok(value),
                outcome => outcome,
            }
        })
    }

    /// Calls a function written in the language.
    pub(crate) fn call_function(
        &mut self,
        definition: &Arc<crate::ast::Definition>,
        arguments: Vec<Value>,
        span: Span,
    ) -> EvalResult {
        self.deeper(span, |evaluator| {
            evaluator.scopes.push(true);
            let what = format!("`{}`", definition.name);
            let outcome = evaluator
                .bind(&definition.parameters, arguments, span, &what)
                .and_then(|()| evaluator.all(&definition.body));
            evaluator.scopes.pop();
            match outcome {
                Err(Stop::Return(value, _)) => Ok(value),
                outcome => outcome,
            }
        })
    }
}
