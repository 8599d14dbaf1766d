//! The result of a run, and what to do next.

use std::io;
use std::path::Path;

use bunraku_engine::{OrderingMode, ResourceResult, RunEnd, Status, Summary};
use serde_json::{Value, json};

use super::Printer;

/// The threshold for slow steps, in seconds. Faster steps are not worth a line.
const SLOW: f64 = 0.5;
const SLOWEST: usize = 5;

/// The subject of the summary.
pub(crate) struct SummarySubject<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) mode: OrderingMode,
    pub(crate) detailed: bool,
}

/// Prints the summary.
pub(crate) fn summary(
    summary: &Summary,
    described: &SummarySubject<'_>,
    json: bool,
    printer: &Printer,
) -> io::Result<()> {
    if json {
        printer.text(&format!("{}\n", as_json(summary, described)));
        return Ok(());
    }
    let mut text = format!("{}\n", counts(summary, described));
    let mut slow: Vec<&ResourceResult> = (summary.finished.iter())
        .filter(|one| one.outcome.duration.as_secs_f64() >= SLOW)
        .collect();
    slow.sort_by_key(|one| std::cmp::Reverse(one.outcome.duration));
    if !slow.is_empty() {
        text.push_str("slowest:\n");
        for one in slow.iter().take(SLOWEST) {
            let seconds = one.outcome.duration.as_secs_f64();
            text.push_str(&format!("  {seconds:>7.1} s  {}\n", one.reference));
        }
    }
    printer.result(&text)?;
    if let Some(hint) = hint(summary, described) {
        printer.error_line(&format!("\nhint: {hint}"));
    }
    Ok(())
}

fn counts(summary: &Summary, described: &SummarySubject<'_>) -> String {
    let mut parts = Vec::new();
    let corrective = summary
        .finished
        .iter()
        .filter(|one| one.outcome.corrective && one.outcome.status == Status::Changed)
        .count();
    for (status, word) in [
        (Status::Changed, "changed"),
        (Status::Pending, "would change"),
        (Status::Unchanged, "unchanged"),
        (Status::Failed, "failed"),
        (Status::Skipped, "skipped"),
    ] {
        let count = summary.count(status);
        let always = status
            == if summary.noop {
                Status::Pending
            } else {
                Status::Changed
            }
            || status == Status::Unchanged;
        if count > 0 || always {
            let more = if status == Status::Changed && corrective > 0 {
                format!(" ({corrective} corrective)")
            } else {
                String::new()
            };
            parts.push(format!("{count} {word}{more}"));
        }
    }
    let what = match (&summary.ended_early, summary.noop) {
        (Some(RunEnd::Interrupted), _) => "interrupted",
        (Some(RunEnd::FailHard(_)), _) => "stopped after a failure",
        (None, true) => "noop",
        (None, false) => "applied",
    };
    let name = if described.name.is_empty() {
        String::new()
    } else {
        format!("  {}", described.name)
    };
    format!(
        "{what}{name}  {}  {}  {:.1} s",
        described.mode.as_str(),
        parts.join(", "),
        summary.duration.as_secs_f64()
    )
}

fn hint(summary: &Summary, described: &SummarySubject<'_>) -> Option<String> {
    let path = described.path.display();
    if summary.ended_early == Some(RunEnd::Interrupted) {
        return Some(format!("continue with `bunraku apply {path}`"));
    }
    if !summary.succeeded() {
        return Some(format!(
            "run `bunraku apply {path} --explain` to see the order and why"
        ));
    }
    if summary.noop && summary.changed() {
        return Some(format!("apply these changes with `bunraku apply {path}`"));
    }
    None
}

fn as_json(summary: &Summary, described: &SummarySubject<'_>) -> Value {
    let count = |status| summary.count(status);
    json!({
        "event": "summary",
        "name": described.name,
        "order": described.mode.as_str(),
        "noop": summary.noop,
        "succeeded": summary.succeeded(),
        "ended_early": summary.ended_early.as_ref().map(|end| match end {
            RunEnd::Interrupted => "interrupted".to_owned(),
            RunEnd::FailHard(reference) => format!("failhard: {reference}"),
        }),
        "changed": count(Status::Changed),
        "pending": count(Status::Pending),
        "unchanged": count(Status::Unchanged),
        "failed": count(Status::Failed),
        "skipped": count(Status::Skipped),
        "duration": summary.duration.as_secs_f64(),
        "detailed_exitcodes": described.detailed,
        "states": summary.finished.iter().map(|one| Value::Object(super::json::one(one))).collect::<Vec<_>>(),
    })
}
