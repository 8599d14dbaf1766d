//! Errors in a query: the problem, its place, and a hint.

use std::ops::Range;

use bunraku_model::Excerpt;

/// An invalid query.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub message: String,
    /// Byte range in the text.
    pub span: Range<usize>,
    pub hint: Option<String>,
}

impl QueryError {
    pub(crate) fn new(message: impl Into<String>, span: Range<usize>) -> Self {
        Self {
            message: message.into(),
            span,
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message, the line it refers to, and a caret under the place.
    pub fn render(&self, text: &str) -> String {
        let place = Excerpt::of("", text, self.span.clone());
        format!("{}{}", self.message, place.primary(""))
    }
}
