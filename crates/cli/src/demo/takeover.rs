//! The act in which the leader of a run is killed in the middle of it.

use std::time::{Duration, Instant};

use bunraku_model::RunId;
use bunraku_plan::run::RunSummary;
use bunraku_wire::api::{Cause, ReportPage, RunEnding, ServerStatus};
use bunraku_wire::endpoints::{Endpoint, ListReports, ListRuns, ReportsQuery, ShowServer};

use super::code::{end_run, show_progress};
use super::fleet::{DemoFleet, LOOK};
use super::panel::Mark;
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;

/// The line after which the leader is killed: the first node is running.
const MIDDLE: &str = "dev1.devco.net is running";

/// The time in which some server must lead the run.
const PATIENCE: Duration = Duration::from_secs(60);

impl DemoFleet {
    /// Runs the site, kills the leader of the run, and checks the result.
    pub(crate) async fn run_through_a_kill(&mut self, stage: &mut Stage) -> Result<(), Failure> {
        let (mut run, mut lines) = self.start_run(stage)?;
        let mut killed: Option<(String, Instant)> = None;
        let mut next = None;
        while let Some(line) = lines.next_line().await? {
            show_progress(stage, &line);
            match &killed {
                None if line.contains(MIDDLE) => {
                    stage.note("dev1 runs, and the others wait for it")?;
                    let leader = self.kill_the_leader().await?;
                    stage.set(
                        &leader,
                        Mark::Gone,
                        "killed",
                        "kill -9, while it led the run",
                    );
                    stage.note(&format!("{leader}, the leader of the run, is killed"))?;
                    killed = Some((leader, Instant::now()));
                }
                // Every line after the kill comes from the new leader.
                Some((_, at)) if next.is_none() => {
                    next = (self.who_leads().await).map(|name| (name, at.elapsed()));
                }
                _ => {}
            }
        }
        end_run(stage, &mut run).await?;
        let Some((killed, _)) = killed else {
            return Err(Failure::new("the run ended before its leader was killed"));
        };
        let mut by = "another server".to_owned();
        if let Some((next, after)) = next {
            let after = after.as_secs_f64();
            self.losses
                .recovered
                .push(format!("run taken over in {after:.1} s"));
            by = next;
        }
        stage.note(&format!("{by} took over the run from its log"))?;
        self.losses.killed.push(format!("{killed}, leading a run"));
        self.show_who_ran(stage).await?;
        self.restart_member(&killed).await?;
        stage.set(&killed, Mark::Well, "up", "restarted");
        stage.note(&format!("{killed} is restarted"))?;
        // The spare may have replaced its datastore meanwhile. That belongs to this act.
        self.wait_until_whole(stage).await
    }

    /// Waits until a server leads the run, and kills that server.
    async fn kill_the_leader(&mut self) -> Result<String, Failure> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(leader) = self.who_leads().await {
                self.kill_member(&leader).await?;
                return Ok(leader);
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Failure::new(format!(
            "no server led the run within {} s",
            PATIENCE.as_secs()
        )))
    }

    /// Returns the server that leads a run, according to itself.
    async fn who_leads(&self) -> Option<String> {
        for (name, address) in self.running_members() {
            let client = self.client_of(&[address]).ok()?;
            // A server that does not answer leads nothing.
            let status: Result<ServerStatus, _> = client.call(ShowServer).await;
            if status.is_ok_and(|status| !status.leads.is_empty()) {
                return Some(name);
            }
        }
        None
    }

    /// Shows from the reports that each node ran once.
    async fn show_who_ran(&self, stage: &mut Stage) -> Result<(), Failure> {
        let client = self.client()?;
        let runs: Vec<RunSummary> = client
            .call(ListRuns)
            .await
            .map_err(|error| failed(&error))?;
        let run: RunId = runs
            .first()
            .map(|run| run.record.id)
            .ok_or_else(|| Failure::new("the run is unknown"))?;
        let query = ReportsQuery {
            limit: Some(100),
            ..ReportsQuery::default()
        };
        let page: ReportPage = client
            .call(ListReports.with_query((), &query))
            .await
            .map_err(|error| failed(&error))?;
        let of_the_run = |report: &&bunraku_wire::api::ReportSummary| {
            report.started.causes.contains(&Cause::Run { run })
        };
        let reports: Vec<_> = page.reports.iter().filter(of_the_run).collect();
        let mut nodes: Vec<_> = reports.iter().map(|report| &report.node).collect();
        nodes.sort();
        nodes.dedup();
        let good = |report: &&bunraku_wire::api::ReportSummary| {
            let finished = report.finished.as_ref();
            finished.is_some_and(|finished| finished.ending == RunEnding::Succeeded)
        };
        if reports.len() != 4 || nodes.len() != 4 || !reports.iter().all(good) {
            return Err(Failure::new(format!(
                "the run has {} reports of {} nodes; expected one from each of four",
                reports.len(),
                nodes.len()
            )));
        }
        stage.note("four reports from four nodes: each ran exactly once, and all succeeded")
    }
}
