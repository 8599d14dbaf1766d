//! Source texts, and places in them.

use std::sync::Arc;

/// A source file, by its place in [`Sources`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(u32);

/// Some bytes of a source file.
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

    /// From the start of this to the end of the other.
    pub(crate) fn to(self, other: Span) -> Self {
        match self.file == other.file && other.end >= self.start {
            true => Self {
                end: other.end,
                ..self
            },
            false => self,
        }
    }
}

/// All files that were read, for messages that point into them.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    files: Vec<(Arc<str>, Arc<str>)>,
}

/// A line of source with a part of it marked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub text: String,
    /// How many characters are marked.
    pub width: usize,
}

impl Sources {
    pub fn add(&mut self, name: &str, text: &str) -> FileId {
        self.files.push((name.into(), text.into()));
        FileId(u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX))
    }

    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |(_, text)| text)
    }

    /// The line that a span starts on.
    pub fn excerpt(&self, span: Span) -> Excerpt {
        let (name, text) = self
            .files
            .get(span.file.0 as usize)
            .map_or(("", ""), |(name, text)| (name, text));
        let start = floor(text, span.start as usize);
        let end = floor(text, span.end as usize).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        Excerpt {
            file: name.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: text[line_start..line_end].trim_end().to_owned(),
            width: text[start..end.min(line_end)].chars().count().max(1),
        }
    }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl std::fmt::Display for Excerpt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Excerpt {
    /// `  --> file:line:column`, the line, and a mark with a few words below it.
    pub fn pointing(&self, arrow: &str, mark: char, label: &str) -> String {
        const LONGEST: usize = 160;
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        // A line of a megabyte helps nobody: what is around the mark is shown.
        let from = (self.column - 1).saturating_sub(LONGEST / 2);
        let from = if self.text.chars().count() <= LONGEST {
            0
        } else {
            from
        };
        let shown: String = self
            .text
            .chars()
            .skip(from)
            .take(LONGEST)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let space = " ".repeat(self.column - 1 - from);
        let marks: String = std::iter::repeat_n(mark, self.width.min(LONGEST)).collect();
        let label = match label {
            "" => String::new(),
            label => format!(" {label}"),
        };
        format!("\n{gutter}{arrow} {self}\n{number} | {shown}\n{gutter} | {space}{marks}{label}")
    }
}
