//! Reports as text. Everything here only formats text, except for the live view.

use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{
    EventCounts, EventStatus, LogLine, NumberedEvent, ReportEvent, ReportState,
    ReportStreamMessage, ReportSummary, ResourceEvent, RunEnding, RunFinished, RunMode, RunStarted,
};
use bunraku_wire::client::{BackOff, Lines};
use bunraku_wire::endpoints::{Endpoint, FollowReports, ReportStreamQuery};

use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_view::causes;
use crate::output::{self, count, time};

/// The number of resources listed as the slowest.
const SLOWEST: usize = 5;

/// Formats one report with its events.
pub(crate) fn render_report(
    summary: &ReportSummary,
    state: &str,
    events: &[NumberedEvent],
    all: bool,
    logs: bool,
) -> String {
    let mut text = head(summary, state);
    let resources = || {
        events.iter().filter_map(|event| match &event.event {
            ReportEvent::Resource(resource) => Some(&**resource),
            _ => None,
        })
    };
    if let Some(before) = summary.events_deleted_before {
        text.push_str(&format!(
            "\nThe events of this report are no longer kept: those of reports before {before:.0} were deleted.\n"
        ));
    }
    text.push('\n');
    for event in events {
        match &event.event {
            ReportEvent::Resource(resource) if all || resource.status != EventStatus::Unchanged => {
                text.push_str(&resource_lines(resource));
            }
            ReportEvent::Log(line) if logs || line.level == "error" => {
                text.push_str(&log_line(line));
            }
            ReportEvent::Omitted(omitted) => text.push_str(&format!(
                "  … {} missing: {}\n",
                count(omitted.count, "event"),
                omitted.reason
            )),
            _ => {}
        }
    }
    let unchanged = summary.counts.unchanged;
    let reported = resources().filter(|one| one.status == EventStatus::Unchanged);
    let not_reported = unchanged.saturating_sub(reported.count() as u64);
    if !all && unchanged > 0 {
        text.push_str(&format!("  = {unchanged} unchanged\n"));
    } else if not_reported > 0 {
        text.push_str(&format!(
            "  = {not_reported} unchanged and not reported one by one; \
             `bunraku node run --report-unchanged` reports them\n"
        ));
    }
    let mut slow: Vec<&ResourceEvent> = resources().collect();
    slow.sort_by(|a, b| b.duration_seconds.total_cmp(&a.duration_seconds));
    if slow.len() > 1 {
        text.push_str("\nslowest\n");
        for resource in slow.iter().take(SLOWEST) {
            let seconds = resource.duration_seconds;
            text.push_str(&format!("  {seconds:>8.3} s  {}\n", name(resource)));
        }
    }
    text
}

fn head(summary: &ReportSummary, state: &str) -> String {
    let lines = head_lines(summary, state);
    let shown = lines
        .iter()
        .map(|(name, value)| format!("{name:<10} {value}\n"));
    shown.collect()
}

/// Returns the names and values of a report's details.
pub(crate) fn head_lines(summary: &ReportSummary, state: &str) -> Vec<(&'static str, String)> {
    let started = &summary.started;
    let mut lines = vec![
        ("run", summary.run.to_string()),
        ("node", summary.node.to_string()),
        ("state", state.to_owned()),
        ("started", time(started.at)),
        ("causes", causes(&started.causes, started.more_causes)),
        ("resources", counts(&summary.counts)),
        ("method", started.method.clone()),
    ];
    if let (Some(environment), Some(release)) = (&started.environment, started.release) {
        let catalog = started.catalog.map(|id| id.0.short()).unwrap_or_default();
        lines.push((
            "release",
            format!("{release} of {environment}, catalog {catalog}"),
        ));
    }
    if let Some(reason) = started.noop_reason {
        lines.push(("noop", reason.words().to_owned()));
    }
    if started.from_cache {
        let text = "no server was reachable: the node applied its cached catalog";
        lines.push(("note", text.to_owned()));
    }
    if let Some(finished) = &summary.finished {
        lines.push(("took", format!("{:.1} s", finished.duration_seconds)));
        lines.extend(finished.message.clone().map(|message| ("message", message)));
    }
    if let Some(repeats) = &summary.repeats {
        let text = format!(
            "{} more with the same result, the last at {:.0}",
            count(repeats.count, "scheduled run"),
            repeats.at
        );
        lines.push(("repeated", text));
    }
    if summary.omitted > 0 {
        let text = format!(
            "{} missing: the node could not store them",
            count(summary.omitted, "event")
        );
        lines.push(("note", text));
    }
    lines
}

fn name(resource: &ResourceEvent) -> String {
    format!("{}[{}]", resource.type_name, resource.title)
}

/// Returns the result of a resource in a few words.
pub(crate) fn result_word(resource: &ResourceEvent) -> &'static str {
    match resource.status {
        EventStatus::Unchanged => "unchanged",
        EventStatus::Changed if resource.corrective => "corrected",
        EventStatus::Changed => "changed",
        EventStatus::Pending if resource.corrective => "would be corrected",
        EventStatus::Pending => "would change",
        EventStatus::Failed => "failed",
        EventStatus::Skipped => "skipped",
    }
}

/// Formats a mark, the resource, the result and its details.
fn resource_lines(resource: &ResourceEvent) -> String {
    let word = result_word(resource);
    let mark = match resource.status {
        EventStatus::Unchanged => "=",
        EventStatus::Changed | EventStatus::Pending if resource.corrective => "~",
        EventStatus::Changed | EventStatus::Pending => "+",
        EventStatus::Failed => "✗",
        EventStatus::Skipped => "-",
    };
    let seconds = resource.duration_seconds;
    let mut text = format!("  {mark} {}  {word}  {seconds:.2} s", name(resource));
    if let (Some(file), Some(line)) = (&resource.file, resource.line) {
        text.push_str(&format!("  {file}:{line}"));
    }
    text.push('\n');
    if let Some(message) = &resource.message {
        text.push_str(&indented(message));
    }
    if resource.status != EventStatus::Unchanged {
        for reason in &resource.reasons {
            text.push_str(&indented(reason));
        }
    }
    for change in &resource.changes {
        let from = change.from.as_deref().unwrap_or("absent");
        let to = change.to.as_deref().unwrap_or("absent");
        text.push_str(&indented(&format!("{}: {from} → {to}", change.property)));
        if let Some(diff) = &change.diff {
            text.push_str(&indented(diff));
        }
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("      {line}\n")).collect()
}

fn log_line(line: &LogLine) -> String {
    let source = line.source.as_ref().map(|source| format!(" {source}:"));
    format!(
        "  | {}{} {}\n",
        line.level,
        source.unwrap_or_default(),
        line.message
    )
}

/// Returns `succeeded`, `failed, noop`, `running`, `lost`.
pub(crate) fn state(report: &ReportSummary) -> String {
    let word = match (&report.finished, report.state) {
        (Some(finished), _) => finished.ending.as_str().replace('_', " "),
        (None, ReportState::Lost) => "lost".to_owned(),
        (None, _) => "running".to_owned(),
    };
    match report.started.mode {
        RunMode::Noop => format!("{word}, noop"),
        RunMode::Enforce => word,
    }
}

/// Lists unusual counts, and the total.
pub(crate) fn counts(counts: &EventCounts) -> String {
    let intentional = (counts.changed + counts.pending).saturating_sub(counts.corrective);
    let (verb, corrected) = if counts.pending > 0 {
        ("would change", "would be corrected")
    } else {
        ("changed", "corrected")
    };
    let mut words = Vec::new();
    for (count, word) in [
        (counts.failed, "failed"),
        (counts.skipped, "skipped"),
        (intentional, verb),
        (counts.corrective, corrected),
    ] {
        if count > 0 {
            words.push(format!("{count} {word}"));
        }
    }
    match (words.is_empty(), counts.total()) {
        (true, 0) => "–".to_owned(),
        (true, total) => format!("{total} unchanged"),
        (false, total) => format!("{} of {total}", words.join(", ")),
    }
}

/// Formats the end of a run in one line, with the reason.
pub(crate) fn ending_line(report: &ReportSummary) -> String {
    let good =
        (report.finished.as_ref()).is_some_and(|finished| finished.ending == RunEnding::Succeeded);
    let mark = if good { "✓" } else { "✗" };
    let seconds = report
        .finished
        .as_ref()
        .map_or(0.0, |finished| finished.duration_seconds);
    let mut line = format!(
        "{mark} {}  {}  {}  {seconds:.1} s",
        report.node,
        state(report),
        counts(&report.counts)
    );
    let message = report
        .finished
        .as_ref()
        .and_then(|finished| finished.message.clone());
    if let Some(message) = message.filter(|message| !message.is_empty()) {
        line.push_str(&format!("  {message}"));
    }
    if let Some(failure) = report.failures.first() {
        let message = failure.message.as_deref().unwrap_or("failed");
        line.push_str(&format!("  {}: {message}", failure.resource));
    }
    format!("{line}\n")
}

/// Follows the events of all nodes forever. A broken stream resumes where it broke.
pub(crate) async fn follow(
    client: &Client,
    node: Option<&NodeName>,
    all: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let back_off = BackOff {
        first: Duration::from_millis(200),
        longest: Duration::from_secs(10),
    };
    let mut cursor: Option<String> = None;
    let mut failures = 0;
    loop {
        let query = ReportStreamQuery {
            node: node.cloned(),
            cursor: cursor.clone(),
        };
        let at = FollowReports.with_query((), &query);
        let broke = match client.follow(at).await {
            Ok(lines) => {
                failures = 0;
                print_events(lines, &mut cursor, all, json).await?
            }
            Err(error) => Some(error),
        };
        match broke {
            Some(error) if !error.is_passing() => return Err(failed(&error)),
            _ => {}
        }
        tokio::time::sleep(back_off.random_wait(failures)).await;
        failures += 1;
    }
}

/// Prints events until the stream breaks. Returns the reason.
async fn print_events(
    mut lines: Lines<ReportStreamMessage>,
    cursor: &mut Option<String>,
    all: bool,
    json: bool,
) -> Result<Option<bunraku_wire::ClientError>, Failure> {
    while let Some(message) = lines.next().await {
        let message = match message {
            Ok(message) => message,
            Err(error) => return Ok(Some(error)),
        };
        if json {
            output::json_line(&message)?;
        }
        match message {
            ReportStreamMessage::Open { cursor: opened } => *cursor = Some(opened),
            ReportStreamMessage::Gap => note!("some events were missed"),
            ReportStreamMessage::Events {
                cursor: next,
                node,
                events,
                ..
            } => {
                *cursor = Some(next);
                for event in events.iter().filter(|_| !json) {
                    output::write(&live(&node, &event.event, all))?;
                }
            }
        }
    }
    Ok(None)
}

/// Formats one event for the live view.
pub(crate) fn live(node: &NodeName, event: &ReportEvent, all: bool) -> String {
    match event {
        ReportEvent::Started(started) => format!("{node}: {}\n", begun(started)),
        ReportEvent::Resource(resource) if all || resource.status != EventStatus::Unchanged => {
            format!("{node}:{}", resource_lines(resource))
        }
        ReportEvent::Log(line) if all => format!("{node}:{}", log_line(line)),
        ReportEvent::Omitted(omitted) => {
            format!(
                "{node}: {} missing: {}\n",
                count(omitted.count, "event"),
                omitted.reason
            )
        }
        ReportEvent::Finished(finished) => format!("{node}: {}\n", ended(finished)),
        ReportEvent::Resource(_) | ReportEvent::Log(_) => String::new(),
    }
}

fn begun(started: &RunStarted) -> String {
    let why = causes(&started.causes, started.more_causes);
    format!("started, {} ({why})", count(started.resources, "resource"))
}

fn ended(finished: &RunFinished) -> String {
    let message = finished.message.as_ref().map(|text| format!(": {text}"));
    format!(
        "{}, {}, {:.1} s{}",
        finished.ending.as_str().replace('_', " "),
        counts(&finished.counts()),
        finished.duration_seconds,
        message.unwrap_or_default()
    )
}
