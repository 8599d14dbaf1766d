//! Locations in state files, for people.

use std::fmt;

/// A position in a file of the state tree.
///
/// The position is in the file as written. If rendering moved the text so that the exact line is
/// unknown, the line is the nearest known one, and `rendered` shows the rendered text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Location {
    pub file: String,
    /// The line, from 1; 0 means the whole file.
    pub line: usize,
    /// The column, from 1; 0 means the whole line.
    pub column: usize,
    pub rendered: Option<Box<RenderedLine>>,
}

/// A line of rendered text that differs from the template's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RenderedLine {
    pub line: usize,
    pub text: String,
}

impl Location {
    /// Returns the location of the whole file.
    pub fn of_file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            ..Self::default()
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        Ok(())
    }
}
