//! The fleet in a few lines: one for each server and node. Pure.

use anstyle::{AnsiColor, Style};

/// How a row looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Not started yet.
    Absent,
    /// Well, and idle.
    Well,
    /// Working.
    Busy,
    /// Needs attention, such as a disabled node.
    Attention,
    /// Dead or disconnected.
    Gone,
}

impl Mark {
    fn symbol(self) -> (char, Style) {
        match self {
            Self::Absent => ('·', Style::new().dimmed()),
            Self::Well => ('●', AnsiColor::Green.on_default()),
            Self::Busy => ('◐', AnsiColor::Cyan.on_default()),
            Self::Attention => ('●', AnsiColor::Yellow.on_default()),
            Self::Gone => ('✗', AnsiColor::Red.on_default()),
        }
    }
}

struct Row {
    name: String,
    role: String,
    mark: Mark,
    state: String,
    note: String,
}

/// The rows in the order in which they were added.
#[derive(Default)]
pub(crate) struct Panel {
    rows: Vec<Row>,
}

impl Panel {
    /// Adds a row, unless there is one with this name.
    pub(crate) fn add(&mut self, name: &str, role: &str) {
        if !self.rows.iter().any(|row| row.name == name) {
            self.rows.push(Row {
                name: name.to_owned(),
                role: role.to_owned(),
                mark: Mark::Absent,
                state: "-".to_owned(),
                note: String::new(),
            });
        }
    }

    /// Replaces the state of a row.
    pub(crate) fn set(&mut self, name: &str, mark: Mark, state: &str, note: &str) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
            row.mark = mark;
            row.state = state.to_owned();
            row.note = note.to_owned();
        }
    }

    /// Returns the lines with colours, none wider than this.
    pub(crate) fn lines(&self, columns: usize) -> Vec<String> {
        let width = |of: fn(&Row) -> &str| {
            let widths = self.rows.iter().map(|row| of(row).chars().count());
            widths.max().unwrap_or(0)
        };
        let (names, roles) = (width(|row| &row.name), width(|row| &row.role));
        let states = width(|row| &row.state).max(9);
        let line = |row: &Row| {
            let (symbol, style) = row.mark.symbol();
            let rest = format!(
                " {:<names$}  {:<roles$}  {:<states$}  {}",
                row.name, row.role, row.state, row.note
            );
            let rest = cut(rest.trim_end(), columns.saturating_sub(3));
            format!("  {style}{symbol}{style:#}{rest}")
        };
        self.rows.iter().map(line).collect()
    }
}

/// Cuts a line to this many characters.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn every_server_and_node_has_one_line_that_fits() {
        let mut panel = Panel::default();
        panel.add("server", "");
        panel.add("dev1", "database");
        panel.add("dev2", "web");
        panel.add("dev2", "web");
        panel.set("server", Mark::Well, "up", "127.0.0.1:8150");
        panel.set(
            "dev1",
            Mark::Busy,
            "running",
            "File[/srv/www/a/very/long/path]",
        );
        panel.set("nobody", Mark::Gone, "lost", "");
        let plain = |line: &String| format!("|{}\n", anstream::adapter::strip_str(line));
        let text: String = panel.lines(48).iter().map(plain).collect();
        expect![[r#"
            |  ● server            up         127.0.0.1:8150
            |  ◐ dev1    database  running    File[/srv/www/…
            |  · dev2    web       -
        "#]]
        .assert_eq(&text);
    }
}
