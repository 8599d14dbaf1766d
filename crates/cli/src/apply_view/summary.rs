//! The result of a run, and what to do next.

use std::io::{self, Write};
use std::path::Path;

use bunraku_engine::{Finished, Mode, RunEnd, Status, Summary};
use serde_json::{Value, json};

/// The threshold for slow steps, in seconds. Faster steps are not worth a line.
const SLOW: f64 = 0.5;
const SLOWEST: usize = 5;

/// The subject of the summary.
pub(crate) struct Told<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a Path,
    pub(crate) mode: Mode,
    pub(crate) detailed: bool,
}

/// Writes the summary to stdout.
pub(crate) fn summary(summary: &Summary, told: &Told<'_>, json: bool) -> io::Result<()> {
    if json {
        super::json::write(&as_json(summary, told));
        return Ok(());
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", counts(summary, told))?;
    let mut slow: Vec<&Finished> = (summary.finished.iter())
        .filter(|one| one.outcome.duration.as_secs_f64() >= SLOW)
        .collect();
    slow.sort_by_key(|one| std::cmp::Reverse(one.outcome.duration));
    if !slow.is_empty() {
        writeln!(out, "slowest:")?;
        for one in slow.iter().take(SLOWEST) {
            writeln!(
                out,
                "  {:>7.1} s  {}",
                one.outcome.duration.as_secs_f64(),
                one.reference
            )?;
        }
    }
    out.flush()?;
    if let Some(hint) = hint(summary, told) {
        anstream::eprintln!("\nhint: {hint}");
    }
    Ok(())
}

fn counts(summary: &Summary, told: &Told<'_>) -> String {
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
        (Some(RunEnd::FailHard(_)), _) => "ended by a failure",
        (None, true) => "noop",
        (None, false) => "applied",
    };
    let name = if told.name.is_empty() {
        String::new()
    } else {
        format!("  {}", told.name)
    };
    format!(
        "{what}{name}  {}  {}  {:.1} s",
        told.mode.as_str(),
        parts.join(", "),
        summary.duration.as_secs_f64()
    )
}

fn hint(summary: &Summary, told: &Told<'_>) -> Option<String> {
    let path = told.path.display();
    if summary.ended_early == Some(RunEnd::Interrupted) {
        return Some(format!(
            "go on where it stopped with `bunraku apply {path}`"
        ));
    }
    if !summary.succeeded() {
        return Some(format!(
            "see why each step stands where it stands with `bunraku apply {path} --explain`"
        ));
    }
    if summary.noop && summary.changed() {
        return Some(format!("make these changes with `bunraku apply {path}`"));
    }
    None
}

fn as_json(summary: &Summary, told: &Told<'_>) -> Value {
    let count = |status| summary.count(status);
    json!({
        "event": "summary",
        "name": told.name,
        "order": told.mode.as_str(),
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
        "detailed_exitcodes": told.detailed,
        "states": summary.finished.iter().map(|one| Value::Object(super::json::one(one))).collect::<Vec<_>>(),
    })
}
