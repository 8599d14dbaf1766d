//! The reasons why a catalog cannot be applied, reported before anything changes.

use std::fmt;

use bunraku_model::catalog::{Place, ResourceReference};

use crate::Refusal;

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
    #[error("these resources wait for each other:\n{}", path(.0))]
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
    #[error("there is no resource type `{name}`{}", did_you_mean(.near))]
    UnknownType { name: String, near: Vec<String> },
    #[error("the type `{of}` has no parameter `{name}`{}", did_you_mean(.near))]
    UnknownParameter {
        of: &'static str,
        name: String,
        near: Vec<String>,
    },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("`{requisite}` names {target}, which is not in the catalog{}", did_you_mean(.near))]
    MissingReference {
        requisite: &'static str,
        target: String,
        near: Vec<String>,
    },
    #[error("`{requisite}` holds `{text}`, which is not a reference")]
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

fn list(problems: &[Problem]) -> String {
    let shown: Vec<String> = problems.iter().take(20).map(Problem::to_string).collect();
    let mut text = shown.join("\n");
    if problems.len() > shown.len() {
        text.push_str(&format!("\nand {} more", problems.len() - shown.len()));
    }
    text
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
    let wanted_lower = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .map(|name| {
            (
                strsim::jaro_winkler(&wanted_lower, &name.to_lowercase()),
                name,
            )
        })
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}
