//! Problems in code: what, where, why, and what to do next.

use crate::source::{Sources, Span};

/// One problem, or a note.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnostic {
    pub message: String,
    pub span: Span,
    /// A few words below the marked source.
    pub label: String,
    /// Other relevant places.
    pub also: Vec<(Span, String)>,
    pub hint: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(message: impl Into<String>, span: Span) -> Self {
        Self {
            message: message.into(),
            span,
            label: String::new(),
            also: Vec::new(),
            hint: None,
        }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(crate) fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.also.push((span, label.into()));
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint with similar names.
    pub(crate) fn near<'a>(self, wanted: &str, names: impl Iterator<Item = &'a str>) -> Self {
        let nearest = names
            .map(|name| (strsim::jaro_winkler(wanted, name), name))
            .filter(|(score, _)| *score > 0.8)
            .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(one.1)));
        match nearest {
            Some((_, name)) => {
                let hint = format!("did you mean `{name}`?");
                self.hint(hint)
            }
            None => self,
        }
    }

    /// Renders the text for people, with the source lines that it refers to.
    pub fn render(&self, sources: &Sources) -> String {
        let mut text = self.message.clone();
        text.push_str(&sources.excerpt(self.span).primary(&self.label));
        for (span, label) in &self.also {
            text.push_str(&sources.excerpt(*span).secondary(label));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        text
    }
}

/// The reason why code could not be read or evaluated, with the source lines.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{rendered}")]
pub struct PuppetError {
    pub diagnostic: Box<Diagnostic>,
    rendered: String,
}

impl PuppetError {
    pub(crate) fn new(diagnostic: Diagnostic, sources: &Sources) -> Self {
        Self {
            rendered: diagnostic.render(sources),
            diagnostic: Box::new(diagnostic),
        }
    }
}
