//! A line of source text with a part of it marked.
//!
//! Every message that points into a text (Puppet code, a site, a query) shows
//! it in this form:
//!
//! ```text
//!   --> site.pp:14:10
//! 14 |   file { '/etc/motd': content => 'b' }
//!    |          ^^^^^^^^^^^ second declaration
//! ```

use std::fmt;
use std::ops::Range;

/// The longest line shown in full. A longer line is shown only around the mark.
const LONGEST: usize = 160;

/// A line of source text with a part of it marked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    /// The file's name; empty for a text that has none.
    pub file: String,
    /// The line number, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    pub text: String,
    /// The number of marked characters.
    pub width: usize,
}

impl Excerpt {
    /// Returns the line on which these bytes of a text start. Bytes beyond the text, or inside a
    /// character, refer to the nearest place before them.
    pub fn of(file: &str, text: &str, bytes: Range<usize>) -> Self {
        let start = text.floor_char_boundary(bytes.start);
        let end = text.floor_char_boundary(bytes.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        Self {
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: text[line_start..line_end].trim_end().to_owned(),
            width: text[start..end.min(line_end)].chars().count().max(1),
        }
    }

    /// Shows the place that a message is about, with a few words below the mark.
    pub fn primary(&self, label: &str) -> String {
        self.pointing("-->", '^', label)
    }

    /// Shows another relevant place.
    pub fn secondary(&self, label: &str) -> String {
        self.pointing(":::", '-', label)
    }

    fn pointing(&self, arrow: &str, mark: char, label: &str) -> String {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let from = if self.text.chars().count() <= LONGEST {
            0
        } else {
            (self.column - 1).saturating_sub(LONGEST / 2)
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

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_its_line_and_a_mark() {
        let text = "one\n\ttwo three\n";
        let excerpt = Excerpt::of("site.pp", text, 9..14);
        let shown = "\n --> site.pp:2:6\n2 |  two three\n  |      ^^^^^ here";
        assert_eq!(excerpt.primary("here"), shown);
        assert_eq!(excerpt.secondary("").lines().last(), Some("  |      -----"));
    }

    #[test]
    fn places_outside_of_the_text_and_inside_characters_are_moved() {
        assert_eq!(Excerpt::of("", "ä", 1..99).to_string(), "1:1");
        assert_eq!(
            Excerpt::of("", "", 5..9).primary(""),
            "\n --> 1:1\n1 | \n  | ^"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let text = format!("{}here{}", "a".repeat(1_000_000), "b".repeat(1_000_000));
        let shown = Excerpt::of("", &text, 1_000_000..1_000_004).primary("");
        assert!(shown.len() < 600);
        assert!(shown.contains("here"));
    }
}
