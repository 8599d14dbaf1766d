//! The overview page.

use bunraku_console::{Count, EnvironmentLine, OverviewPage, Section, Tone};
use bunraku_plan::run::RunSummary;
use bunraku_wire::api::{
    EnvironmentSummary, NodeSummary, ReleaseHold, ReleaseKind, ReleaseList, ReleasePolicy,
    ReleaseState, ReportPage,
};
use bunraku_wire::endpoints::{
    Endpoint, ListEnvironments, ListNodes, ListReleases, ListReports, ListRuns, ReportsQuery,
};
use jiff::Timestamp;

use super::nodes::{by_status, report_line};
use super::page::{PageError, Source};
use super::runs;
use crate::compile_view::compiled_words;
use crate::output::ago;

const MOST_RUNS: usize = 5;
const MOST_FAILURES: usize = 5;
const MOST_REPORTS: usize = 10;
const MOST_ENVIRONMENTS: usize = 20;

pub(super) async fn page(source: &Source) -> Result<OverviewPage, PageError> {
    let failed = ReportsQuery {
        failed: true,
        limit: Some(MOST_FAILURES),
        ..ReportsQuery::default()
    };
    let newest = ReportsQuery {
        limit: Some(MOST_REPORTS),
        ..ReportsQuery::default()
    };
    let (servers, nodes, environments, all, failures, reports): (
        _,
        Vec<NodeSummary>,
        Vec<EnvironmentSummary>,
        Vec<RunSummary>,
        ReportPage,
        ReportPage,
    ) = tokio::try_join!(
        source.servers(),
        source.call(ListNodes),
        source.call(ListEnvironments),
        source.call(ListRuns),
        source.call(ListReports.with_query((), &failed)),
        source.call(ListReports.with_query((), &newest)),
    )?;
    let now = Timestamp::now();
    let shown = environments.iter().take(MOST_ENVIRONMENTS);
    let lines = shown.map(|environment| async move {
        let releases = ListReleases.at(&environment.name);
        let releases: ReleaseList = source.call(releases).await?;
        Ok::<_, PageError>(environment_line(environment, &releases, now))
    });
    let lines = futures::future::try_join_all(lines).await?;
    let mut counts = by_status(&nodes);
    let is_active = |run: &&RunSummary| run.end.is_none() && !runs::is_scheduled(run, now);
    let open = all.iter().filter(is_active).count();
    counts.push(Count {
        number: open,
        what: "active ordered runs".to_owned(),
        tone: if open > 0 { Tone::Busy } else { Tone::Quiet },
        path: "/runs".to_owned(),
    });
    Ok(OverviewPage {
        frame: source.frame("Overview", Section::Overview, &servers),
        counts,
        environments: lines,
        runs: runs::lines(&all, MOST_RUNS),
        failures: (failures.reports.iter())
            .map(|report| report_line(report, now))
            .collect(),
        reports: (reports.reports.iter())
            .map(|report| report_line(report, now))
            .collect(),
    })
}

fn environment_line(
    environment: &EnvironmentSummary,
    releases: &ReleaseList,
    now: Timestamp,
) -> EnvironmentLine {
    let newest = releases.releases.first();
    let waiting = match releases.waiting {
        0 => String::new(),
        count => format!("; {count} held"),
    };
    let state = match releases.state {
        Some(ReleaseState::Applying) => ", being applied",
        _ => "",
    };
    EnvironmentLine {
        name: environment.name.to_string(),
        code: (environment.deployed.as_ref())
            .map_or_else(|| "none".to_owned(), |it| it.code_id.short().to_owned()),
        compiled: compiled_words(&environment.progress),
        tone: match environment.progress {
            progress if progress.failed > 0 => Tone::Bad,
            progress if progress.waiting > 0 => Tone::Busy,
            progress if progress.compiled > 0 => Tone::Good,
            _ => Tone::Quiet,
        },
        release: newest.map_or_else(
            || format!("none yet{waiting}"),
            |it| {
                format!(
                    "{} by {}, {} ago{state}{waiting}",
                    it.number,
                    it.by,
                    ago(it.created, now)
                )
            },
        ),
        hold: (releases.hold.as_ref())
            .filter(|hold| is_in_effect(hold, environment, releases))
            .map(|hold| format!("held by {}: {}", hold.by, hold.reason)),
    }
}

/// Returns whether a hold still matters: it stops automatic releases, or nothing was released since.
fn is_in_effect(
    hold: &ReleaseHold,
    environment: &EnvironmentSummary,
    releases: &ReleaseList,
) -> bool {
    let newest = releases.releases.first();
    let released_since = newest.is_some_and(|newest| {
        let is_rollback = matches!(newest.kind, ReleaseKind::Rollback { .. });
        newest.created > hold.since && !is_rollback
    });
    environment.policy == ReleasePolicy::Auto || !released_since
}
