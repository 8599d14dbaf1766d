//! The worker. It executes one run after the other, each with its report.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{NoopReason, RunEnding, RunFailure, RunMode, RunStarted};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::leftovers::Leftovers;
use super::method::{PreparedRun, RunDescription, RunEnd, RunMethod, RunOrder, RunStartError};
use super::queue::QueuedRun;
use super::{ActiveRun, Runs};
use crate::reports::Recorder;

/// The longest sleep. A clock may be set, so pending deadlines are checked this often, and only
/// while there are any.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The reason why a run is stopped before its end.
enum StopReason {
    TimedOut(Duration),
    Cancelled,
    ShutDown,
}

impl Runs {
    /// Executes requested runs until cancelled. The active run is then stopped, reported as
    /// interrupted, and requested again at the next start.
    pub(crate) async fn work(&self, shutdown: &CancellationToken) {
        self.recover();
        let mut at_work: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
        loop {
            self.report_expired();
            if at_work.is_none() {
                if shutdown.is_cancelled() {
                    return;
                }
                at_work = self.start().map(|run| {
                    let (runs, shutdown) = (self.clone(), shutdown.clone());
                    let future = async move { runs.execute(run, &shutdown).await };
                    Box::pin(future) as Pin<Box<dyn Future<Output = ()> + Send>>
                });
            }
            let idle = at_work.is_none();
            let ended = async {
                match &mut at_work {
                    Some(run) => run.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = ended => at_work = None,
                () = self.inner.queued.notified() => {}
                () = self.next_expiry() => {}
                () = self.hold_runs_out() => {}
                () = shutdown.cancelled(), if idle => return,
            }
        }
    }

    /// Settles the run that was active when an earlier process ended.
    fn recover(&self) {
        let now = self.now();
        for (run, started, counts) in self.inner.spool.unfinished() {
            tracing::warn!(%run, "a run was interrupted when the agent stopped");
            let recorder = self.inner.spool.resume(run);
            let message = match started {
                Some(started) => format!(
                    "the agent stopped during a run that started at {}",
                    started.at
                ),
                None => "the agent stopped during the run".to_owned(),
            };
            tracing::debug!(?counts, "up to where it was interrupted");
            recorder.finish(RunEnding::Interrupted, Some(message));
            let interrupted = self.file().change_anyway(|queue| queue.take(run));
            if let Some(interrupted) = interrupted {
                self.ask_again(interrupted, now);
            }
        }
        // A run that had begun and has no report here has ended, and a server has its report.
        self.file().change_anyway(|queue| {
            if let Some(running) = queue.running.take()
                && !running.begun
            {
                queue.pending.push_front(running.run);
            }
        });
    }

    fn ask_again(&self, interrupted: QueuedRun, now: Timestamp) {
        let id = NodeRunId(Uuid::now_v7());
        let run = interrupted.request.id;
        let asked = (self.file()).change_anyway(|queue| queue.ask_again(interrupted, id, now));
        if asked {
            tracing::info!(interrupted = %run, again = %id, "queueing the run again");
        }
    }

    fn start(&self) -> Option<QueuedRun> {
        let held_by = self.held_by();
        let run = self.file().start(self.now(), held_by)?;
        let stop = CancellationToken::new();
        *self.current() = ActiveRun {
            run: Some((run.request.id, stop)),
            recorder: None,
            reason: None,
            since: self.now(),
        };
        self.inner.changed.notify_one();
        Some(run)
    }

    async fn execute(&self, run: QueuedRun, shutdown: &CancellationToken) {
        let stop = match &self.current().run {
            Some((_, stop)) => stop.clone(),
            None => CancellationToken::new(),
        };
        let noop_reason = self.noop_reason(&run.request);
        let order = RunOrder {
            id: run.request.id,
            mode: mode(noop_reason),
            subject: run.request.subject.clone(),
            tags: run.request.tags.clone(),
            causes: run.request.causes.clone(),
            more_causes: run.more_causes,
            work: self.file().work_log(),
        };
        let method = Arc::clone(self.method(&run.request.subject));
        let limit =
            (run.request.timeout_seconds.map(Duration::from_secs)).or(self.inner.settings.timeout);
        let mut leftovers = Leftovers::default();
        let prepared = {
            let stopped = stopped(limit, &stop, shutdown);
            let preparing = async {
                leftovers.end(&order.work).await;
                prepare(method.as_ref(), &order).await
            };
            tokio::select! {
                prepared = preparing => Ok(prepared),
                stopped = stopped => Err(stopped),
            }
        };
        match prepared {
            // The run has not begun. It stays in the queue for the next start.
            Err(StopReason::ShutDown) => return,
            Err(stopped) => {
                let end = self.end_of(stopped);
                let message = leftovers.explain(end.message.unwrap_or_default());
                self.report_unstarted(&run, end.ending, message);
            }
            Ok(Err(not_started)) => {
                let RunStartError {
                    message,
                    ending,
                    failure,
                } = not_started;
                self.report_unstarted_with(&run, ending, message, failure);
            }
            Ok(Ok(prepared)) => {
                let started = started(
                    self.now(),
                    &run,
                    prepared.describe(),
                    noop_reason,
                    method.name(),
                );
                self.execute_prepared(&run, prepared, started, limit, &stop, shutdown)
                    .await;
            }
        }
        self.file().change_anyway(|queue| queue.finish());
        *self.current() = ActiveRun {
            run: None,
            recorder: None,
            reason: None,
            since: self.now(),
        };
        self.inner.changed.notify_one();
    }

    async fn execute_prepared(
        &self,
        run: &QueuedRun,
        prepared: Box<dyn PreparedRun>,
        started: RunStarted,
        limit: Option<Duration>,
        stop: &CancellationToken,
        shutdown: &CancellationToken,
    ) {
        tracing::info!(run = %run.request.id, method = started.method, mode = ?started.mode, causes = started.causes.len(), "starting a run");
        let recorder =
            self.inner
                .spool
                .begin(run.request.id, started, run.request.report_unchanged);
        self.file().change_anyway(|queue| queue.begin());
        self.current().recorder = Some(Arc::clone(&recorder));
        // The run has its own token, so that the reason for stopping is known before the run is
        // stopped.
        let ending = CancellationToken::new();
        let work = prepared.execute(Arc::clone(&recorder), ending.clone());
        tokio::pin!(work);
        let mut interrupted = false;
        let end = tokio::select! {
            end = &mut work => end,
            stopped = stopped(limit, stop, shutdown) => {
                ending.cancel();
                interrupted = matches!(stopped, StopReason::ShutDown);
                let end = work.await;
                // The run may have succeeded at that moment.
                if end.ending == RunEnding::Succeeded { end } else { self.cut_short(stopped, end) }
            }
        };
        self.finish(&recorder, run, end, interrupted);
    }

    fn finish(&self, recorder: &Recorder, run: &QueuedRun, end: RunEnd, interrupted: bool) {
        tracing::info!(run = %run.request.id, ending = end.ending.as_str(), message = end.message, "a run ended");
        let again = interrupted && end.ending == RunEnding::Interrupted;
        recorder.finish_with(end.ending, end.message, end.failure);
        if again {
            self.ask_again(run.clone(), self.now());
        }
    }

    /// Returns the end of a run that was stopped. If the run reports its own failure, that failure
    /// explains why it had to be stopped.
    fn cut_short(&self, stopped: StopReason, by_itself: RunEnd) -> RunEnd {
        let end = self.end_of(stopped);
        match (by_itself.failure, &end.message, by_itself.message) {
            (Some(failure), Some(stopped), Some(why)) => RunEnd {
                ending: end.ending,
                message: Some(format!("{stopped}: {why}")),
                failure: Some(failure),
            },
            _ => end,
        }
    }

    fn end_of(&self, stopped: StopReason) -> RunEnd {
        let (ending, message) = match stopped {
            StopReason::TimedOut(limit) => (
                RunEnding::TimedOut,
                format!("it exceeded its time limit of {} s", limit.as_secs()),
            ),
            StopReason::Cancelled => {
                let reason = self.current().reason.take();
                (RunEnding::Cancelled, reason.unwrap_or_default())
            }
            StopReason::ShutDown => (
                RunEnding::Interrupted,
                "the agent is shutting down".to_owned(),
            ),
        };
        RunEnd {
            ending,
            message: Some(message),
            failure: None,
        }
    }

    fn report_expired(&self) {
        let now = self.now();
        let is_due = (self.file().queue().next_expiry()).is_some_and(|expiry| expiry <= now);
        if !is_due {
            return;
        }
        let expired = self.file().change_anyway(|queue| queue.take_expired(now));
        for run in expired {
            let message = "it waited too long".to_owned();
            self.report_unstarted(&run, RunEnding::Expired, message);
        }
        self.inner.changed.notify_one();
    }

    async fn next_expiry(&self) {
        let expiry = self.file().queue().next_expiry();
        match expiry {
            None => pending().await,
            Some(expiry) => {
                let left = Duration::try_from(expiry.duration_since(self.now()));
                tokio::time::sleep(left.unwrap_or_default().min(LONGEST_SLEEP)).await;
            }
        }
    }

    /// Writes the report of a run that never began.
    pub(super) fn report_unstarted(&self, run: &QueuedRun, ending: RunEnding, message: String) {
        self.report_unstarted_with(run, ending, message, None);
    }

    fn report_unstarted_with(
        &self,
        run: &QueuedRun,
        ending: RunEnding,
        message: String,
        failure: Option<RunFailure>,
    ) {
        tracing::info!(run = %run.request.id, ending = ending.as_str(), message, "a run was not started");
        let noop_reason = self.noop_reason(&run.request);
        let description = RunDescription::new(mode(noop_reason));
        let method = self.method(&run.request.subject).name();
        let started = started(self.now(), run, description, noop_reason, method);
        let recorder =
            self.inner
                .spool
                .begin(run.request.id, started, run.request.report_unchanged);
        recorder.finish_with(ending, Some(message), failure);
    }
}

/// Resolves when the run must stop.
async fn stopped(
    limit: Option<Duration>,
    stop: &CancellationToken,
    shutdown: &CancellationToken,
) -> StopReason {
    let timeout = async {
        match limit {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                limit
            }
            None => pending().await,
        }
    };
    tokio::select! {
        limit = timeout => StopReason::TimedOut(limit),
        () = stop.cancelled() => StopReason::Cancelled,
        () = shutdown.cancelled() => StopReason::ShutDown,
    }
}

/// Prepares a run. Only a method that supports environments is asked to run in one: another method
/// would apply something other than what was requested.
async fn prepare(
    method: &dyn RunMethod,
    order: &RunOrder,
) -> Result<Box<dyn PreparedRun>, RunStartError> {
    if let Some(mismatch) = order.mismatch(method) {
        return Err(RunStartError::new(mismatch));
    }
    match order.environment() {
        Some(environment) if !method.knows_environments() => Err(RunStartError::new(format!(
            "environment `{environment}` was requested, but the node's run method ({}) does not support environments",
            method.name()
        ))),
        _ => method.prepare(order).await,
    }
}

fn mode(noop_reason: Option<NoopReason>) -> RunMode {
    match noop_reason {
        Some(_) => RunMode::Noop,
        None => RunMode::Enforce,
    }
}

/// Creates the first event of a report. A run that is stricter than its order follows its release.
fn started(
    at: Timestamp,
    run: &QueuedRun,
    description: RunDescription,
    noop_reason: Option<NoopReason>,
    method: &str,
) -> RunStarted {
    RunStarted {
        at,
        mode: description.mode,
        noop_reason: (description.mode == RunMode::Noop)
            .then(|| noop_reason.unwrap_or(NoopReason::Release)),
        causes: run.request.causes.clone(),
        more_causes: run.more_causes,
        also: run.also.clone(),
        environment: description.environment,
        release: description.release,
        catalog: description.catalog,
        code_id: description.code_id,
        from_cache: description.from_cache,
        resources: description.resources,
        method: method.to_owned(),
    }
}
