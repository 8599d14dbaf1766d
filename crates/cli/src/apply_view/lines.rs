//! One resource as lines of text.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use bunraku_engine::{Change, DisplayValue, FailedAttempt, Reason, ResourceResult, Status};

/// The maximum number of diff lines. Longer diffs are cut; `--json` has the rest.
const LONGEST_DIFF: usize = 200;

fn style(status: Status) -> (Style, &'static str) {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    match status {
        Status::Changed => (colour(AnsiColor::Green), "~"),
        Status::Pending => (colour(AnsiColor::Cyan), "?"),
        Status::Failed => (colour(AnsiColor::Red), "✗"),
        Status::Skipped => (colour(AnsiColor::Yellow), "-"),
        Status::Unchanged => (Style::new(), " "),
    }
}

/// The time for plain lines. A terminal needs none because it shows events live.
pub(super) fn time(terminal: bool) -> String {
    if terminal {
        return String::new();
    }
    format!("{} ", jiff::Zoned::now().strftime("%FT%T%:z"))
}

/// A failed attempt, and when the next one starts.
pub(super) fn retrying(retry: &FailedAttempt<'_>) -> String {
    let (reference, attempt, why) = (retry.reference, retry.attempt, retry.why);
    let wait = retry.wait.as_secs_f64();
    format!("{reference} attempt {attempt}: {why}; retrying in {wait} s")
}

/// The result of a resource, with its changes.
pub(super) fn finished(finished: &ResourceResult, diffs: bool) -> String {
    let outcome = &finished.outcome;
    let (style, sign) = style(outcome.status);
    let mut text = format!(
        "  {style}{sign} {}{style:#}  {}",
        finished.reference,
        outcome.status.as_str()
    );
    if outcome.corrective && outcome.status != Status::Failed {
        text.push_str(" (corrective)");
    }
    for reason in &outcome.reasons {
        let separator = if matches!(reason, Reason::RefreshedBy(_)) {
            ", "
        } else {
            ": "
        };
        let _ = write!(text, "{separator}{reason}");
    }
    if let Some(message) = &outcome.message {
        let _ = write!(text, ": {message}");
    }
    if outcome.status == Status::Failed {
        let _ = write!(text, "\n      at {}", finished.place);
        if outcome.attempts > 1 {
            let _ = write!(text, ", after {} attempts", outcome.attempts);
        }
    }
    text.push('\n');
    if !matches!(outcome.status, Status::Skipped | Status::Failed) {
        for change in &outcome.changes {
            one_change(change, diffs, &mut text);
        }
    }
    text
}

fn one_change(change: &Change, diffs: bool, text: &mut String) {
    let _ = writeln!(
        text,
        "      {}: {} → {}",
        change.property,
        display_text(&change.from),
        display_text(&change.to)
    );
    let Some(diff) = change.diff.as_ref().filter(|_| diffs) else {
        return;
    };
    let lines = diff.lines().filter(|line| !line.starts_with('\\'));
    for (index, line) in lines.enumerate() {
        if index == LONGEST_DIFF {
            let _ = writeln!(
                text,
                "        … {} more lines",
                diff.lines().count() - LONGEST_DIFF
            );
            break;
        }
        let colour = match line.as_bytes().first() {
            Some(b'+') => Some(AnsiColor::Green),
            Some(b'-') => Some(AnsiColor::Red),
            Some(b'@') => Some(AnsiColor::Cyan),
            _ => None,
        };
        let style = Style::new().fg_color(colour.map(Into::into));
        let _ = writeln!(text, "        {style}{line}{style:#}");
    }
}

/// A value as one line of bounded length, without characters that could move a terminal's cursor.
fn display_text(value: &DisplayValue) -> String {
    let text = match value {
        DisplayValue::Absent => return "absent".to_owned(),
        DisplayValue::Secret => return "[secret]".to_owned(),
        DisplayValue::Value(serde_json::Value::String(text)) => text.clone(),
        DisplayValue::Value(value) => value.to_string(),
    };
    let clean: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    match clean.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}
