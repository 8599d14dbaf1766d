//! The page of one report: resources, changes, log and causes.

use bunraku_console::{
    ChangeLine, DiffLine, FactLine, LogLine, ReportPage, ResourceLine, Section, Tone,
};
use bunraku_wire::api::{
    EventStatus, LogLine as LoggedLine, NumberedEvent, ReportEvent, ReportState, ReportSummary,
    ResourceEvent,
};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{Endpoint, FindReport, ListReportEvents};

use super::nodes::ordered_run;
use super::page::{PageError, Source, local};
use crate::report_view::{head_lines, result_word, state};

/// The maximum number of resources and of log lines on one page.
const MOST_RESOURCES: usize = 500;
const MOST_LINES: usize = 1_000;
/// The maximum number of lines of one diff.
const MOST_DIFF: usize = 200;

pub(super) async fn page(source: &Source, run: &str) -> Result<ReportPage, PageError> {
    let run = run.to_owned();
    let (servers, summary): (_, ReportSummary) =
        tokio::try_join!(source.servers(), source.call(FindReport.at(&run)))?;
    let at = ListReportEvents.at((&summary.node, &summary.run));
    let mut lines: Lines<NumberedEvent> = source.client.follow(at).await?;
    let (mut resources, mut log, mut more) = (Vec::new(), Vec::new(), 0);
    while let Some(event) = lines.next().await {
        match event?.event {
            ReportEvent::Resource(resource) if resource.status != EventStatus::Unchanged => {
                if resources.len() < MOST_RESOURCES {
                    resources.push(resource_line(&resource));
                } else {
                    more += 1;
                }
            }
            ReportEvent::Log(line) if log.len() < MOST_LINES => log.push(log_line(&line)),
            _ => {}
        }
    }
    // Failed ones first; the others keep their order.
    resources.sort_by_key(|resource| resource.tone != Tone::Bad);
    let details = head_lines(&summary, &state(&summary)).into_iter();
    Ok(ReportPage {
        frame: source.frame_below("Report", Section::Nodes, &servers),
        node: summary.node.to_string(),
        run: summary.run.to_string(),
        state: state(&summary),
        tone: match (summary.is_failure(), summary.state) {
            (true, _) => Tone::Bad,
            (false, ReportState::Running) => Tone::Busy,
            (false, _) => Tone::Good,
        },
        details: details
            .map(|(name, value)| FactLine {
                name: name.to_owned(),
                value,
            })
            .collect(),
        ordered_run: ordered_run(&summary),
        resources,
        more,
        unchanged: summary.counts.unchanged,
        log,
    })
}

fn resource_line(resource: &ResourceEvent) -> ResourceLine {
    let messages = resource.message.iter().chain(&resource.reasons);
    let place = match (&resource.file, resource.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        _ => String::new(),
    };
    ResourceLine {
        name: format!("{}[{}]", resource.type_name, resource.title),
        place,
        result: result_word(resource).to_owned(),
        tone: match resource.status {
            EventStatus::Failed => Tone::Bad,
            EventStatus::Skipped => Tone::Quiet,
            _ if resource.corrective => Tone::Warn,
            EventStatus::Pending => Tone::Busy,
            EventStatus::Changed | EventStatus::Unchanged => Tone::Good,
        },
        took: format!("{:.2} s", resource.duration_seconds),
        messages: messages.cloned().collect(),
        changes: (resource.changes.iter())
            .map(|change| ChangeLine {
                property: change.property.clone(),
                from: change.from.clone().unwrap_or_else(|| "absent".to_owned()),
                to: change.to.clone().unwrap_or_else(|| "absent".to_owned()),
                diff: (change.diff.iter())
                    .flat_map(|diff| diff.lines())
                    .take(MOST_DIFF)
                    .map(|line| DiffLine {
                        text: line.to_owned(),
                    })
                    .collect(),
            })
            .collect(),
    }
}

fn log_line(line: &LoggedLine) -> LogLine {
    let source = line.source.as_ref().map(|source| format!("{source}: "));
    LogLine {
        text: format!(
            "{}  {}  {}{}",
            local(line.at),
            line.level,
            source.unwrap_or_default(),
            line.message
        ),
        tone: match line.level.as_str() {
            "error" => Tone::Bad,
            "warning" => Tone::Warn,
            _ => Tone::Quiet,
        },
    }
}
