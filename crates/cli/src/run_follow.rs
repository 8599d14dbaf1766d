//! Follows a run: reads its log as it grows, and computes the same state as its leader. The loss of
//! a server changes nothing; the next one is asked.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bunraku_plan::run::{Run, RunDetail, RunEnd, RunLog, RunOutcome, RunRecord, RunWait};
use bunraku_wire::Client;
use bunraku_wire::endpoints::{
    CancelRun, Endpoint, ReportRunCheck, RunLogQuery, ShowRun, ShowRunLog, StopRun,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::connection::failed;
use crate::failure::Failure;
use crate::output;
use crate::run_checks::LocalChecks;
use crate::run_progress::ProgressFollower;
use crate::run_view::{self, LiveView, REDRAW};

/// The time without an answer from any server after which following stops. The run continues.
const PATIENCE: Duration = Duration::from_secs(300);

/// The effect of Ctrl-C.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// First press: start no new steps. Second: cancel. Third: leave.
    Stop,
    /// Stop watching; the run continues.
    Leave,
}

/// Returns the current state of a run.
pub(crate) async fn fetch(client: &Client, run: &str) -> Result<(RunRecord, Run), Failure> {
    let detail: RunDetail = client
        .call(ShowRun.at(&run.to_owned()))
        .await
        .map_err(|error| failed(&error))?;
    Ok(state_of(detail))
}

/// Computes the state of a run from its record and log.
pub(crate) fn state_of(detail: RunDetail) -> (RunRecord, Run) {
    let (state, _) = Run::of_record(&detail.record, Arc::new(detail.plan), detail.log.entries);
    (detail.record, state)
}

/// Returns a run as JSON for programs.
pub(crate) fn as_json(record: &RunRecord, run: &Run) -> serde_json::Value {
    let steps: Vec<serde_json::Value> = (0..)
        .map(bunraku_plan::StepIndex)
        .zip(run.statuses())
        .map(|(step, status)| {
            let planned = &run.plan().steps[step.at()];
            serde_json::json!({
                "node": planned.node,
                "pass": planned.pass,
                "group": planned.group,
                "node_run": run.node_run(step),
                "status": status,
            })
        })
        .collect();
    serde_json::json!({
        "record": record,
        "phase": run.phase(),
        "tally": run.tally(),
        "groups": run.plan().groups,
        "waits": run.waits(),
        "steps": steps,
    })
}

/// Follows a run to its end and returns the result.
pub(crate) async fn follow(
    client: &Client,
    id: &str,
    json: bool,
    interrupt: Interrupt,
    commands: &[String],
) -> Result<RunOutcome, Failure> {
    let detail: RunDetail = client
        .call(ShowRun.at(&id.to_owned()))
        .await
        .map_err(|error| failed(&error))?;
    let record = detail.record;
    let plan = Arc::new(detail.plan);
    let (run, _) = Run::of_record(&record, plan, []);
    let mut view = View::new(run, json, client);
    view.begin(&record);
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut pressed = 0;
    let mut end = view.take(detail.log, detail.end);
    let mut next = view.next;
    let mut silent_since: Option<Instant> = None;
    let mut checks = LocalChecks::new(commands);
    while end.is_none() {
        checks.begin(&view.run);
        let query = RunLogQuery {
            after: next,
            wait_seconds: 30,
        };
        let asking = client.call(ShowRunLog.with_query(&record.id.to_string(), &query));
        tokio::pin!(asking);
        let reply = loop {
            tokio::select! {
                reply = &mut asking => break reply,
                _ = interrupts.recv() => {
                    pressed += 1;
                    pressed_again(client, &record, pressed, interrupt, &view).await?;
                }
                () = view.is_due() => view.redraw(),
                result = checks.next() => {
                    let at = ReportRunCheck.at(&record.id.to_string());
                    // The run may have stopped meanwhile: the log says so next.
                    if let Err(error) = client.call_with(at, &result).await {
                        view.print_line(&format!("cannot report the check: {error}"));
                    }
                }
            }
        };
        match reply {
            Ok(reply) => {
                silent_since = None;
                end = view.take(reply.log, reply.end);
                next = view.next;
            }
            Err(error) => {
                let since = *silent_since.get_or_insert_with(|| {
                    view.print_line("no server answers; the run continues; retrying");
                    Instant::now()
                });
                if since.elapsed() > PATIENCE {
                    return Err(failed(&error).hint(format!(
                        "the run continues: follow it with `bunraku run watch {}`",
                        run_view::short(record.id)
                    )));
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
    view.end(&record)?;
    end.map(|end| end.outcome)
        .ok_or_else(|| Failure::new("the run ended without a result"))
}

async fn pressed_again(
    client: &Client,
    record: &RunRecord,
    pressed: u32,
    interrupt: Interrupt,
    view: &View,
) -> Result<(), Failure> {
    let short = run_view::short(record.id);
    let what = match (interrupt, pressed) {
        (Interrupt::Stop, 1) => "stop",
        (Interrupt::Stop, 2) => "cancel",
        _ => {
            return Err(
                Failure::new("no longer following the run; it continues on the servers")
                    .hint(format!("follow it again with `bunraku run watch {short}`")),
            );
        }
    };
    view.print_line(match what {
        "stop" => "stopping: no more nodes start; press Ctrl-C again to cancel the running ones",
        _ => "cancelling: running nodes are stopped; press Ctrl-C again to detach",
    });
    let id = record.id.to_string();
    let asked = match what {
        "stop" => client.call(StopRun.at(&id)).await,
        _ => client.call(CancelRun.at(&id)).await,
    };
    match asked {
        // The run has already ended: the log says so next.
        Err(error) if error.status() == Some(409) => Ok(()),
        outcome => outcome.map_err(|error| failed(&error)),
    }
}

/// The output: live, as lines, or as JSON at the end.
struct View {
    run: Run,
    next: u64,
    json: bool,
    live: Option<(LiveView, ProgressFollower)>,
}

impl View {
    fn new(run: Run, json: bool, client: &Client) -> Self {
        let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let live = (terminal && !json).then(|| {
            let steps = (0..)
                .map(bunraku_plan::StepIndex)
                .take(run.statuses().len());
            let runs: Vec<_> = steps.map(|step| run.node_run(step)).collect();
            (
                LiveView::new(),
                ProgressFollower::start(client.clone(), runs),
            )
        });
        Self {
            run,
            next: 0,
            json,
            live,
        }
    }

    /// Resolves when the terminal must be redrawn because time has passed.
    async fn is_due(&self) {
        match &self.live {
            Some(_) => tokio::time::sleep(REDRAW).await,
            None => std::future::pending().await,
        }
    }

    fn redraw(&mut self) {
        if let Some((live, following)) = &mut self.live {
            live.show(&self.run, &following.progress());
        }
    }

    fn begin(&self, record: &RunRecord) {
        self.print_line(&format!("Run {} accepted.", run_view::short(record.id)));
        for wait in self.run.waits() {
            if matches!(wait, RunWait::Approval { .. }) {
                self.print_line(&format!(
                    "waiting for {}",
                    run_view::wait_text(&self.run, &wait)
                ));
            }
        }
    }

    fn take(&mut self, log: RunLog, end: Option<RunEnd>) -> Option<RunEnd> {
        for entry in &log.entries {
            let before = self.run.clone();
            self.run.step(&entry.event, entry.at);
            for line in run_view::line(&before, &self.run, entry) {
                self.print_line(&line);
            }
        }
        self.next = log.next;
        self.redraw();
        // The end is written after the last entry. Output is complete only with both.
        end.filter(|_| self.run.outcome().is_some())
    }

    fn print_line(&self, line: &str) {
        match &self.live {
            Some((live, _)) => live.print_line(line),
            None => note!("{line}"),
        }
    }

    fn end(self, record: &RunRecord) -> Result<(), Failure> {
        if let Some((live, _)) = self.live {
            live.finish();
        }
        if self.json {
            return output::json(&as_json(record, &self.run));
        }
        output::write(&format!("\n{}", run_view::summary(record, &self.run)))?;
        if self.run.outcome() != Some(RunOutcome::Succeeded) {
            note!(
                "\nhint: run the remaining nodes with `bunraku run resume {}`",
                run_view::short(record.id)
            );
        }
        Ok(())
    }
}
