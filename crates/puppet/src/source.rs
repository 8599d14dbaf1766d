//! Source texts, and places in them.

use std::sync::Arc;

use bunraku_model::Excerpt;

/// A source file, by its index in [`Sources`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(u32);

/// A byte range in a source file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(crate) fn new(file: FileId, start: usize, end: usize) -> Self {
        let clip = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            file,
            start: clip(start),
            end: clip(end),
        }
    }

    /// Returns the span from the start of this one to the end of the other.
    pub(crate) fn to(self, other: Span) -> Self {
        if self.file == other.file && other.end >= self.start {
            Self {
                end: other.end,
                ..self
            }
        } else {
            self
        }
    }
}

/// All source files, for messages that point into them.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    files: Vec<(Arc<str>, Arc<str>)>,
}

impl Sources {
    pub fn add(&mut self, name: &str, text: &str) -> FileId {
        self.files.push((name.into(), text.into()));
        FileId(u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX))
    }

    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |(_, text)| text)
    }

    /// Returns the line on which a span starts.
    pub fn excerpt(&self, span: Span) -> Excerpt {
        let (name, text) = self
            .files
            .get(span.file.0 as usize)
            .map_or(("", ""), |(name, text)| (name, text));
        Excerpt::of(name, text, span.start as usize..span.end as usize)
    }
}
