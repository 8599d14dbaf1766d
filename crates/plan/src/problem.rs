//! The reasons why there is no plan, with the components at fault.

use std::fmt;

use bunraku_model::Excerpt;

/// Everything that is wrong with a site.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{}", join_problems(.0))]
pub struct PlanError(pub Vec<SiteProblem>);

/// One problem with a site.
#[derive(Clone, PartialEq, Debug)]
pub struct SiteProblem {
    pub message: String,
    /// Lines below the message, such as the path of a cycle.
    pub details: Vec<String>,
    pub places: Vec<(Excerpt, String)>,
    pub hint: Option<String>,
}

impl SiteProblem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            details: Vec::new(),
            places: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn at(mut self, place: Option<&Excerpt>, label: &str) -> Self {
        if let Some(place) = place {
            self.places.push((place.clone(), label.to_owned()));
        }
        self
    }

    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<SiteProblem> for PlanError {
    fn from(problem: SiteProblem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for SiteProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for detail in &self.details {
            write!(f, "\n  {detail}")?;
        }
        for (index, (place, label)) in self.places.iter().enumerate() {
            f.write_str(&match index {
                0 => place.primary(label),
                _ => place.secondary(label),
            })?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

fn join_problems(problems: &[SiteProblem]) -> String {
    const MOST: usize = 20;
    let texts: Vec<String> = problems
        .iter()
        .take(MOST)
        .map(SiteProblem::to_string)
        .collect();
    let mut text = texts.join("\n\n");
    if problems.len() > MOST {
        text.push_str(&format!("\n\nand {} more", problems.len() - MOST));
    }
    text
}
