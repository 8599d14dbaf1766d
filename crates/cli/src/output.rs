//! Data on standard output: JSON for programs, tables for people.
//!
//! Rule: text for people passes [`visible`].

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Failure;
use crate::json_mode;
use crate::messages::note;
use crate::terminal::{self, visible};
use crate::waiting;

/// Prints a value as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    write_json(&serde_json::to_string_pretty(value)?)
}

/// Prints a value as one line of JSON.
pub(crate) fn json_line<T: Serialize>(value: &T) -> Result<(), Failure> {
    write_json(&serde_json::to_string(value)?)
}

fn write_json(text: &str) -> Result<(), Failure> {
    json_mode::has_data();
    write_unchanged(&format!("{}\n", json_mode::escaped(text)))
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

/// Writes text to standard output. A reader that went away is not an error. With `--json`, the
/// text is a string in JSON: standard output never has anything else.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    if json_mode::is_on() {
        return json_line(&serde_json::json!({"text": text}));
    }
    write_unchanged(&visible(text))
}

fn write_unchanged(text: &str) -> Result<(), Failure> {
    waiting::before_output();
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

    /// Prints the table. On a terminal, it has colours and fits the width.
    pub(crate) fn print(self) -> Result<(), Failure> {
        let Some(columns) = terminal::columns(&std::io::stdout()) else {
            return write(&self.render());
        };
        waiting::before_output();
        anstream::print!("{}", self.render_for_terminal(columns));
        std::io::stdout().flush()?;
        Ok(())
    }

    pub(crate) fn render(&self) -> String {
        let widths = self.widths();
        let lines = std::iter::once(&self.headings).chain(&self.rows);
        let padded = lines.map(|line| {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let text = cells.collect::<Vec<_>>().join("  ");
            format!("{}\n", text.trim_end())
        });
        padded.collect()
    }

    fn widths(&self) -> Vec<usize> {
        let lines = || std::iter::once(&self.headings).chain(&self.rows);
        let widest = |column: usize| {
            let widths = lines().map(|line| line[column].chars().count());
            widths.max().unwrap_or(0)
        };
        (0..self.headings.len()).map(widest).collect()
    }

    /// Cuts the widest columns until every line fits, and colours the words for states.
    fn render_for_terminal(&self, columns: usize) -> String {
        let mut widths = self.widths();
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > columns {
            match widths.iter_mut().max() {
                Some(widest) if *widest > NARROWEST => *widest -= 1,
                _ => break,
            }
        }
        let bold = Style::new().bold();
        let mut text = String::new();
        for (number, line) in std::iter::once(&self.headings)
            .chain(&self.rows)
            .enumerate()
        {
            let mut printed = String::new();
            for (cell, width) in line.iter().zip(&widths) {
                let shown = cut(&visible(cell), *width);
                let style = if number == 0 {
                    bold
                } else {
                    state_style(&shown)
                };
                let gap = " ".repeat(width - shown.chars().count() + 2);
                printed.push_str(&format!("{style}{shown}{style:#}{gap}"));
            }
            text.push_str(printed.trim_end());
            text.push('\n');
        }
        text
    }
}

/// No column is cut below this width.
const NARROWEST: usize = 8;

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns the colour of a cell that begins with the word for a state.
fn state_style(cell: &str) -> Style {
    match cell.split([' ', ',', ':']).next().unwrap_or_default() {
        "succeeded" | "current" | "valid" | "released" | "healthy" | "alive" | "ok" => {
            AnsiColor::Green.on_default()
        }
        "failed" | "lost" | "revoked" | "dead" | "quarantined" | "expired" | "cancelled" => {
            AnsiColor::Red.on_default()
        }
        "disabled" | "held" | "pending" | "outdated" | "stopped" => AnsiColor::Yellow.on_default(),
        "running" | "applying" | "starting" => AnsiColor::Cyan.on_default(),
        _ => Style::new(),
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

/// Formats a time for people: whole seconds, in UTC.
pub(crate) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
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
    fn a_table_fits_the_terminal_and_colours_states() {
        let mut table = Table::new(&["NODE", "LAST RUN", "NOTE"]);
        let long = "File[/etc/motd]: cannot write: no space left on device".to_owned();
        table.row(vec![
            "web-1.example.com".to_owned(),
            "failed, 3 s ago".to_owned(),
            long,
        ]);
        let text = table.render_for_terminal(60);
        assert!(
            text.contains("\u{1b}[31mfailed, 3 s ago\u{1b}[0m"),
            "{text:?}"
        );
        let plain = anstream::adapter::strip_str(&text).to_string();
        expect_test::expect![[r#"
            NODE               LAST RUN         NOTE
            web-1.example.com  failed, 3 s ago  File[/etc/motd]: cannot…
        "#]]
        .assert_eq(&plain);
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
