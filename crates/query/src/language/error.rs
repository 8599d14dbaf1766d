//! What is wrong with a query, where, and what to do about it.

use std::ops::Range;

/// A query that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub message: String,
    /// In bytes of the text.
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

    /// The message, the line it is about, and a caret under the place.
    pub fn render(&self, text: &str) -> String {
        let start = floor(text, self.span.start);
        let end = floor(text, self.span.end.max(start));
        let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let number = text[..begin].matches('\n').count() + 1;
        let line = text[begin..].lines().next().unwrap_or("");
        let column = text[begin..start].chars().count();
        let wide = text[start..end]
            .lines()
            .next()
            .unwrap_or("")
            .chars()
            .count();
        let margin = " ".repeat(number.to_string().len());
        format!(
            "{}\n{margin}--> {number}:{}\n{number} | {}\n{margin} | {}{}",
            self.message,
            column + 1,
            line.replace('\t', " "),
            " ".repeat(column),
            "^".repeat(wide.max(1)),
        )
    }
}

/// The nearest place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}
