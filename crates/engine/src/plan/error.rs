//! The reasons why a catalog cannot be applied, reported before anything changes.

use std::collections::BTreeMap;
use std::fmt;

use bunraku_model::catalog::{Place, ResourceReference};

use crate::Refusal;

/// The number of problems that a message lists.
const MOST_LINES: usize = 20;

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
    #[error("dependency cycle:\n{}", path(.0))]
    Cycle(Vec<CycleStep>),
}

/// One problem with one resource.
#[derive(Debug)]
pub struct Problem {
    pub reference: ResourceReference,
    pub place: Place,
    pub kind: ProblemKind,
}

/// The kind of problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemKind {
    #[error("no resource type `{name}`{}", did_you_mean(.near))]
    UnknownType { name: String, near: Vec<String> },
    #[error("the type `{of}` has no parameter `{name}`{}", did_you_mean(.near))]
    UnknownParameter {
        of: &'static str,
        name: String,
        near: Vec<String>,
    },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("`{requisite}` refers to {target}, which is not in the catalog{}", did_you_mean(.near))]
    MissingReference {
        requisite: &'static str,
        target: String,
        near: Vec<String>,
    },
    #[error("`{requisite}` contains `{text}`, which is not a reference")]
    NotAReference {
        requisite: &'static str,
        text: String,
    },
    #[error("it is declared twice, first at {first}")]
    DeclaredTwice { first: Place },
    #[error("`{name}` is registered twice, first by {first}")]
    RegisteredTwice {
        name: String,
        first: ResourceReference,
    },
}

/// One resource on a cycle, and its relation to the next.
#[derive(Clone, Debug)]
pub struct CycleStep {
    pub reference: ResourceReference,
    pub place: Place,
    /// The relation that makes the next one wait for this one.
    pub word: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.reference, self.place, self.kind)
    }
}

/// A resource type that the engine does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownType {
    pub name: String,
    /// The number of resources of this type.
    pub resources: usize,
}

impl fmt::Display for UnknownType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.resources == 1 {
            "resource"
        } else {
            "resources"
        };
        write!(f, "{} ({} {noun})", self.name, self.resources)
    }
}

impl PlanError {
    /// Returns the types that the engine does not know, each once, by name.
    pub fn unknown_types(&self) -> Vec<UnknownType> {
        let Self::Invalid(problems) = self else {
            return Vec::new();
        };
        let mut counts = BTreeMap::new();
        for problem in problems {
            if let ProblemKind::UnknownType { name, .. } = &problem.kind {
                *counts.entry(name.clone()).or_insert(0) += 1;
            }
        }
        let each = |(name, resources)| UnknownType { name, resources };
        counts.into_iter().map(each).collect()
    }
}

/// Lists problems. All resources of an unknown type have the same problem, so it is listed once.
fn list(problems: &[Problem]) -> String {
    let mut lines = Vec::new();
    let mut types: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for problem in problems {
        if let ProblemKind::UnknownType { name, .. } = &problem.kind {
            let (_, count) = types.entry(name).or_insert((lines.len(), 0));
            *count += 1;
            if *count > 1 {
                continue;
            }
        }
        lines.push(problem.to_string());
    }
    for (line, count) in types.values().filter(|(_, count)| *count > 1) {
        lines[*line].push_str(&format!(" ({count} resources)"));
    }
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn path(steps: &[CycleStep]) -> String {
    let mut lines: Vec<String> = steps
        .iter()
        .map(|step| {
            format!(
                "  {} ({})\n    then, by {}:",
                step.reference, step.place, step.word
            )
        })
        .collect();
    if let Some(first) = steps.first() {
        lines.push(format!("  {} ({})", first.reference, first.place));
    }
    lines.join("\n")
}

fn did_you_mean(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(
            "; did you mean {}?",
            names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(" or ")
        ),
    }
}

/// Returns up to three names that are most similar to the wanted one.
pub(super) fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = bunraku_model::near_names(wanted, names);
    near.into_iter().map(str::to_owned).collect()
}
