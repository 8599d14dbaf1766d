//! Problems in a state tree, reported with locations before anything runs.

use std::fmt;

use crate::place::Location;

/// The reason why a tree has no catalog. Nothing has run.
#[derive(Debug, thiserror::Error)]
#[error("{}", join_problems(.0))]
pub struct CompileError(pub Vec<Problem>);

/// One problem, or a note.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    pub message: String,
    pub at: Location,
    /// Other relevant locations, each with a description.
    pub also: Vec<(String, Location)>,
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>, at: Location) -> Self {
        Self {
            message: message.into(),
            at,
            also: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn also(mut self, what: impl Into<String>, at: Location) -> Self {
        self.also.push((what.into(), at));
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint with similar names.
    pub(crate) fn near<'a>(self, wanted: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let near = near_names(wanted, names);
        if near.is_empty() {
            self
        } else {
            self.hint(format!("did you mean {}?", near.join(" or ")))
        }
    }
}

impl std::error::Error for Problem {}

impl From<Problem> for CompileError {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        place(f, "-->", &self.at, None)?;
        for (what, at) in &self.also {
            place(f, ":::", at, Some(what))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

fn place(
    f: &mut fmt::Formatter<'_>,
    arrow: &str,
    at: &Location,
    what: Option<&str>,
) -> fmt::Result {
    write!(f, "\n  {arrow} {at}")?;
    if let Some(what) = what {
        write!(f, " {what}")?;
    }
    if let Some(rendered) = &at.rendered {
        write!(
            f,
            "\n      rendered line {}: {}",
            rendered.line,
            rendered.text.trim_end()
        )?;
    }
    Ok(())
}

fn join_problems(problems: &[Problem]) -> String {
    let mut text = problems
        .iter()
        .take(20)
        .map(Problem::to_string)
        .collect::<Vec<_>>()
        .join("\n\n");
    if problems.len() > 20 {
        text.push_str(&format!("\n\nand {} more", problems.len() - 20));
    }
    text
}

/// Returns up to three names that are most similar to the wanted one.
fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let near = bunraku_model::near_names(wanted, names);
    near.into_iter().map(|name| format!("`{name}`")).collect()
}
