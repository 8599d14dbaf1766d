//! The act in which the leader of a run is killed in the middle of it.

use std::time::{Duration, Instant};

use bunraku_model::RunId;
use bunraku_plan::run::RunSummary;
use bunraku_process::Program;
use bunraku_wire::api::{Cause, ReportPage, RunEnding, ServerStatus};
use bunraku_wire::endpoints::{Endpoint, ListReports, ListRuns, ReportsQuery, ShowServer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::fleet::{DemoFleet, LOOK};
use super::stage::Stage;
use crate::connection::failed;
use crate::failure::Failure;

/// The line after which the leader is killed: the first node is running.
const MIDDLE: &str = "dev1.devco.net is running";

/// The time in which some server must lead the run.
const PATIENCE: Duration = Duration::from_secs(60);

impl DemoFleet {
    /// Runs the site, kills the leader of the run, and checks the result.
    pub(crate) async fn run_through_a_kill(&mut self, stage: &Stage) -> Result<(), Failure> {
        let site = self.write_site()?;
        stage.text(&format!("$ bunraku run --site {site} --yes"));
        let (servers, credentials) = self.operator()?;
        let mut run = Program::new(std::env::current_exe()?)
            .args(["run", "--site", &site, "--yes"])
            .args(["--server", &servers, "--credentials", &credentials])
            .start()?;
        let taken = || Failure::new("its output is already in use");
        let printed = run.stderr.take().ok_or_else(taken)?;
        let mut summary = run.stdout.take().ok_or_else(taken)?;
        let mut lines = BufReader::new(printed).lines();
        let (mut killed, mut next) = (None, None);
        while let Some(line) = lines.next_line().await? {
            stage.text(&line);
            if killed.is_none() && line.contains(MIDDLE) {
                let leader = self.kill_the_leader().await?;
                stage.note(&format!("{leader}, the leader of the run, killed"));
                killed = Some(leader);
            } else if killed.is_some() && next.is_none() {
                // Every line after the kill comes from the new leader.
                next = self.who_leads().await;
            }
        }
        let mut text = String::new();
        summary.read_to_string(&mut text).await?;
        let status = run.wait().await?;
        // The plan was shown before. Only the summary is new.
        stage.text(text.rsplit("\n\n").next().unwrap_or_default());
        let Some(killed) = killed.filter(|_| status.success()) else {
            return Err(Failure::new("the run did not succeed"));
        };
        stage.note(&format!(
            "{} took over the run from its log",
            next.unwrap_or_else(|| "another server".to_owned())
        ));
        self.show_who_ran(stage).await?;
        self.restart_member(&killed).await?;
        stage.note(&format!("{killed} restarted"));
        Ok(())
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
    async fn show_who_ran(&self, stage: &Stage) -> Result<(), Failure> {
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
        stage.note("four reports from four nodes: each ran exactly once, and all succeeded");
        Ok(())
    }
}
