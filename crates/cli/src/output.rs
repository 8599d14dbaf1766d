//! Data on standard output: JSON for programs, tables for people.
//!
//! Rule: text for people passes [`visible`].

use std::fmt::Display;
use std::io::Write;

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::{is_hidden, note, visible};

/// Prints a value as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    write_json(&serde_json::to_string_pretty(value)?)
}

/// Prints a value as one line of JSON.
pub(crate) fn json_line<T: Serialize>(value: &T) -> Result<(), Failure> {
    write_json(&serde_json::to_string(value)?)
}

/// JSON escapes most control characters; the rest is escaped here, so it stays JSON.
fn write_json(text: &str) -> Result<(), Failure> {
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    write_unchanged(&out)
}

/// Prints a list as JSON, if asked to, or says that it is empty. Returns whether there are rows
/// for a table.
pub(crate) fn has_rows<T: Serialize>(list: &[T], json: bool, empty: &str) -> Result<bool, Failure> {
    if json {
        self::json(&list)?;
        return Ok(false);
    }
    if list.is_empty() {
        note(empty);
    }
    Ok(!list.is_empty())
}

/// Writes text to standard output. A reader that went away is not an error.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_unchanged(&visible(text))
}

fn write_unchanged(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(Failure::from),
    }
}

/// A table: rows under headings, in columns as wide as needed.
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            headings: headings
                .iter()
                .map(|heading| (*heading).to_owned())
                .collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn print(self) -> Result<(), Failure> {
        write(&self.render())
    }

    pub(crate) fn render(&self) -> String {
        let lines = || std::iter::once(&self.headings).chain(&self.rows);
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                lines()
                    .map(|line| line[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let padded = lines().map(|line| {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let text = cells.collect::<Vec<_>>().join("  ");
            format!("{}\n", text.trim_end())
        });
        padded.collect()
    }
}

/// Formats a count with its noun: `1 node`, `2 nodes`.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// Formats the time since then for people: `3 s`, `5 min`, `2 h`, `4 d`.
pub(crate) fn ago(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let mut table = Table::new(&["NODE", "STATUS"]);
        table.row(vec!["web-1.example.com".to_owned(), "idle".to_owned()]);
        table.row(vec![String::new(), "ü".to_owned()]);
        expect_test::expect![[r#"
            NODE               STATUS
            web-1.example.com  idle
                               ü
        "#]]
        .assert_eq(&table.render());
    }

    #[test]
    fn spans_are_shown_in_their_largest_unit() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().expect("a time");
        for (since, shown) in [
            ("2026-01-09T23:59:57Z", "3 s"),
            ("2026-01-09T23:50:01Z", "9 min"),
            ("2026-01-09T01:00:00Z", "23 h"),
            ("2026-01-01T00:00:00Z", "9 d"),
            ("2026-01-10T00:00:05Z", "0 s"),
        ] {
            assert_eq!(ago(since.parse().expect("a time"), now), shown);
        }
    }
}
