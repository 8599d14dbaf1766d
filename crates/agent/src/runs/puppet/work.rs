//! Starts Puppet, supervises it, and evaluates its report.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_process::describe;
use bunraku_wire::api::{ReportEvent, RunEnding, RunMode};
use tokio_util::sync::CancellationToken;

use super::super::method::{PreparedRun, RunDescription, RunEnd, RunOrder, RunStartError};
use super::super::process;
use super::failure::PuppetFailure;
use super::invocation::RunFiles;
use super::live_log::LiveLog;
use super::places::PuppetPaths;
use super::prepare::Delivery;
use super::report::{PuppetReport, ReportError};
use super::state::{self, PuppetState};
use crate::reports::Recorder;

/// The interval for reading Puppet's log. A working Puppet writes all the time, so a watch on the
/// file would not wake less often.
const LOOK: Duration = Duration::from_millis(500);

/// A run that Puppet can start.
pub(super) struct PreparedPuppet {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) is_agent: bool,
    pub(super) places: PuppetPaths,
    pub(super) files: RunFiles,
    pub(super) order: RunOrder,
    pub(super) delivery: Option<Delivery>,
    pub(super) description: RunDescription,
}

#[async_trait]
impl PreparedRun for PreparedPuppet {
    fn describe(&self) -> RunDescription {
        self.description.clone()
    }

    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken) -> RunEnd {
        let end = self.work(&recorder, &stop).await;
        // The files that Puppet was given may contain secrets.
        if let Err(error) = std::fs::remove_dir_all(&self.files.directory) {
            tracing::warn!(error = %error, "cannot remove the files of a Puppet run");
        }
        match end {
            Ok(()) => RunEnd {
                ending: RunEnding::Succeeded,
                message: None,
                failure: None,
            },
            Err(failure) => failure.into(),
        }
    }
}

/// The outcome of a Puppet process.
enum ProcessOutcome {
    Report(Box<PuppetReport>),
    /// Another run began in between, so this one did not start.
    Collided,
}

impl PreparedPuppet {
    async fn work(
        &self,
        recorder: &Arc<Recorder>,
        stop: &CancellationToken,
    ) -> Result<(), PuppetFailure> {
        loop {
            self.wait_until_idle(recorder, stop).await?;
            self.place_catalog()?;
            let mut log = LiveLog::new(self.files.log());
            let status = self.execute(recorder, stop, &mut log).await?;
            match self.process_outcome(&status, &log, stop).await? {
                ProcessOutcome::Report(report) => {
                    self.check_origin(&report)?;
                    self.publish_report();
                    record_report(&report, &log, recorder);
                    return if stop.is_cancelled() {
                        Err(PuppetFailure::Stopped)
                    } else {
                        self.check_report(&report, status, &log, recorder)
                    };
                }
                ProcessOutcome::Collided => {
                    recorder.log("info", None, "another Puppet run started first");
                    let _ = std::fs::remove_file(self.files.log());
                }
            }
        }
    }

    /// Waits for a run in progress. The run's own time limit bounds the wait.
    async fn wait_until_idle(
        &self,
        recorder: &Recorder,
        stop: &CancellationToken,
    ) -> Result<(), PuppetFailure> {
        let mut waits_for = None;
        loop {
            let state = PuppetState::read(&self.places).map_err(|error| {
                let why = format!("cannot read its state: {error}");
                PuppetFailure::DidNotStart { why }
            })?;
            match state {
                PuppetState::Idle => return Ok(()),
                PuppetState::StaleLock { pid } => {
                    let whose = pid.map_or_else(|| "nobody".to_owned(), |pid| pid.to_string());
                    let text = format!("leaving a stale lock of process {whose} to Puppet");
                    recorder.log("info", None, &text);
                    return Ok(());
                }
                PuppetState::Disabled { reason } => {
                    return Err(PuppetFailure::Disabled { reason });
                }
                PuppetState::Applying { pid } => {
                    if waits_for.replace(pid) != Some(pid) {
                        let text = format!("waiting for the Puppet run of process {pid}");
                        recorder.log("info", None, &text);
                    }
                    tokio::select! {
                        () = state::wait_for(pid) => {}
                        () = stop.cancelled() => return Err(PuppetFailure::Locked { pid }),
                    }
                }
            }
        }
    }

    fn place_catalog(&self) -> Result<(), PuppetFailure> {
        let Some(delivery) = &self.delivery else {
            return Ok(());
        };
        let path = self.files.catalog(&self.places.certificate_name);
        let parent = path.parent().expect("it is a file in a directory");
        bunraku_files::create_private_directory(parent)
            .and_then(|()| bunraku_files::replace(&path, &delivery.json, 0o600))
            .map_err(|error| PuppetFailure::DidNotStart {
                why: format!("cannot write {}: {error}", path.display()),
            })
    }

    async fn execute(
        &self,
        recorder: &Recorder,
        stop: &CancellationToken,
        log: &mut LiveLog,
    ) -> Result<ExitStatus, PuppetFailure> {
        let mut child = process::program(&self.program, &self.order)
            .args(&self.arguments)
            .start()
            .map_err(|error| PuppetFailure::DidNotStart {
                why: format!("cannot start {}: {error}", self.program.display()),
            })?;
        let status = {
            let ended = process::supervise(&mut child, recorder, stop);
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    status = &mut ended => break status,
                    () = tokio::time::sleep(LOOK) => log.record_new_lines(recorder),
                }
            }
        };
        log.record_new_lines(recorder);
        status.map_err(|error| PuppetFailure::ExitCode {
            status: "an unknown status".to_owned(),
            why: Some(error.to_string()),
        })
    }

    async fn process_outcome(
        &self,
        status: &ExitStatus,
        log: &LiveLog,
        stop: &CancellationToken,
    ) -> Result<ProcessOutcome, PuppetFailure> {
        let path = self.files.report();
        // Large reports take a while.
        let read = tokio::task::spawn_blocking(move || PuppetReport::read(&path)).await;
        let invalid = |why: String| PuppetFailure::InvalidReport { why };
        match read.map_err(|error| invalid(error.to_string()))? {
            Ok(report) => Ok(ProcessOutcome::Report(Box::new(report))),
            Err(_) if stop.is_cancelled() => Err(PuppetFailure::Stopped),
            Err(ReportError::None) => self.without_report(status, log),
            Err(error) => Err(invalid(
                RunStartError::because("it is corrupt", &error).message,
            )),
        }
    }

    /// Determines from the available evidence why there is no report.
    fn without_report(
        &self,
        status: &ExitStatus,
        log: &LiveLog,
    ) -> Result<ProcessOutcome, PuppetFailure> {
        match PuppetState::read(&self.places) {
            Ok(PuppetState::Disabled { reason }) => {
                return Err(PuppetFailure::Disabled { reason });
            }
            Ok(PuppetState::Applying { .. }) if self.is_agent => {
                return Ok(ProcessOutcome::Collided);
            }
            _ => {}
        }
        let status_text = describe(*status);
        match (status.success(), log.last_error()) {
            (true, _) => Err(PuppetFailure::NoReport {
                status: status_text,
            }),
            (false, why) => Err(PuppetFailure::ExitCode {
                status: status_text,
                why,
            }),
        }
    }

    /// Checks that the report belongs to this run, before any of it is logged.
    fn check_origin(&self, report: &PuppetReport) -> Result<(), PuppetFailure> {
        let invalid = |why: String| Err(PuppetFailure::InvalidReport { why });
        if self.is_agent && report.job_id.as_deref() != Some(self.order.id.to_string().as_str()) {
            let of = report.job_id.as_deref().unwrap_or("nobody");
            return invalid(format!("it belongs to another run ({of})"));
        }
        if report.transaction_uuid.parse::<uuid::Uuid>().is_err() {
            return invalid("it has no transaction uuid".to_owned());
        }
        Ok(())
    }

    fn check_report(
        &self,
        report: &PuppetReport,
        status: ExitStatus,
        log: &LiveLog,
        recorder: &Recorder,
    ) -> Result<(), PuppetFailure> {
        let run = self.order.id.to_string();
        let noop = report.noop == Some(true);
        match self.order.mode {
            RunMode::Noop if !noop => {
                let why = "a noop run was requested, but this was not one".to_owned();
                return Err(PuppetFailure::InvalidReport { why });
            }
            RunMode::Enforce if noop => {
                let text = "Puppet's own settings made this a noop run; nothing was changed";
                recorder.log("warning", None, text);
            }
            _ => {}
        }
        if self.delivery.is_some() && report.catalog_uuid.as_deref() != Some(run.as_str()) {
            let why = match &report.catalog_uuid {
                Some(other) => format!("its report is for catalog {other}"),
                None => report
                    .failure()
                    .unwrap_or_else(|| "it used none".to_owned()),
            };
            return Err(PuppetFailure::OtherCatalog { why });
        }
        if let Some(why) = report.failure() {
            return Err(PuppetFailure::Failed(why));
        }
        // Exit code 2 means changes. The report should have explained every other code.
        match status.code() {
            Some(0 | 2) => Ok(()),
            _ => Err(PuppetFailure::ExitCode {
                status: describe(status),
                why: log.last_error(),
            }),
        }
    }

    /// Copies the report to the location where others look for Puppet's last one.
    fn publish_report(&self) {
        let (from, to) = (self.files.report(), &self.places.last_report);
        let written =
            |path: &std::path::Path| path.metadata().and_then(|data| data.modified()).ok();
        if written(to) > written(&from) {
            return;
        }
        let copied =
            std::fs::read(&from).and_then(|report| bunraku_files::replace(to, &report, 0o640));
        if let Err(error) = copied {
            tracing::warn!(path = %to.display(), error = %error, "cannot keep Puppet's last report");
        }
    }
}

/// Records everything in the report that was not recorded before.
fn record_report(report: &PuppetReport, log: &LiveLog, recorder: &Recorder) {
    for line in report.logs.iter().filter(|line| !log.is_recorded(line)) {
        recorder.record(ReportEvent::Log(line.line(recorder.now())));
    }
    for event in report.resources(recorder.now()) {
        recorder.record(event);
    }
    recorder.log("info", None, &report.about());
}
