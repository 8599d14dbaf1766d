//! Where something stands in a state file, for people.

use std::fmt;

/// A position in a file of the state tree.
///
/// The position is in the file as it was written. Where rendering moved the
/// text so that it cannot be told exactly, the line is the nearest one known,
/// and `rendered` shows the text that came out of the template.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Location {
    pub file: String,
    /// From 1; 0 means the file as a whole.
    pub line: usize,
    /// From 1; 0 means the whole line.
    pub column: usize,
    pub rendered: Option<Box<Rendered>>,
}

/// A line of rendered text, where it differs from the template's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rendered {
    pub line: usize,
    pub text: String,
}

impl Location {
    /// The file as a whole.
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
