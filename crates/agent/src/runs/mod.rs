//! The run queue of this node, and the active run.
//!
//! A request is on disk before it is answered. A run's report begins before the queue records the
//! start of the run, and ends before the queue records its end. So a crash between any two steps
//! leaves a run that is pending, or one that is reported as interrupted. No run is ever lost
//! without a trace.
//!
//! Not included: where catalogs come from (`catalogs`), how reports are sent (`reports`), and who
//! requests runs (`commands`, `schedule`).

mod activity_reports;
mod command;
mod engine;
mod event;
mod hold;
mod inputs;
mod labels;
mod leftovers;
mod method;
mod modules;
mod process;
mod puppet;
mod queue;
mod queue_file;
mod released;
mod work;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_model::{Activity, Administration, NodeRunId};
use bunraku_wire::api::{
    Cause, LostNotice, NoopReason, QueueReport, RunEnding, RunMode, RunRequest, RunSubject,
};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use activity_reports::report_activity;
pub use command::{CommandMethod, CommandOptions};
pub(crate) use engine::EngineMethod;
pub use engine::EngineOptions;
pub use method::{PreparedRun, RunDescription, RunEnd, RunMethod, RunOrder, RunStartError};
pub use puppet::{PuppetForm, PuppetMethod, PuppetOptions};
pub(crate) use queue::{CancelOutcome, QueuedRun, SubmitOutcome, SubmitRefusal};
pub use queue_file::QueueError;
pub(crate) use queue_file::QueueFile;

use crate::reports::{Recorder, Spool};
use crate::windows::Windows;

/// The methods that execute runs.
#[derive(Clone)]
pub struct Methods {
    /// The method for released catalogs.
    pub engine: Arc<dyn RunMethod>,
    /// The method that the node's own settings name.
    pub configured: Arc<dyn RunMethod>,
}

/// The settings that apply to a run if its request does not decide.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Runs are noop unless a request says otherwise.
    pub noop: bool,
    /// The windows in which runs enforce; outside of them, runs are noop. Empty: always.
    pub windows: Windows,
    /// The time limit of a run. `None`: no limit.
    pub timeout: Option<Duration>,
}

/// A handle to the queue.
#[derive(Clone)]
pub(crate) struct Runs {
    inner: Arc<Inner>,
}

struct Inner {
    file: Mutex<QueueFile>,
    spool: Arc<Spool>,
    methods: Methods,
    settings: RunSettings,
    current: Mutex<ActiveRun>,
    held: Mutex<Option<hold::ActiveHold>>,
    /// Notifies the worker that a run was queued.
    queued: Notify,
    /// Notifies the task that reports to servers that something changed.
    changed: Notify,
}

/// The active run of this process.
struct ActiveRun {
    run: Option<(NodeRunId, CancellationToken)>,
    /// The report of the run, once it has begun.
    recorder: Option<Arc<Recorder>>,
    /// The reason why the run was cancelled.
    reason: Option<String>,
    since: Timestamp,
}

impl Runs {
    pub(crate) fn new(
        file: QueueFile,
        spool: Arc<Spool>,
        methods: Methods,
        settings: RunSettings,
    ) -> Self {
        let current = ActiveRun {
            run: None,
            recorder: None,
            reason: None,
            since: spool.now(),
        };
        let kept = file.queue().held;
        let held = kept.map(|kept| hold::ActiveHold::from_now(kept.run, kept.seconds));
        Self {
            inner: Arc::new(Inner {
                file: Mutex::new(file),
                spool,
                methods,
                settings,
                current: Mutex::new(current),
                held: Mutex::new(held),
                queued: Notify::new(),
                changed: Notify::new(),
            }),
        }
    }

    /// Returns the machine's clock time.
    fn now(&self) -> Timestamp {
        self.inner.spool.now()
    }

    /// Adds a request to the queue, durably. A disabled node refuses, and the report says so too.
    pub(crate) fn submit(&self, request: RunRequest) -> Result<SubmitOutcome, SubmitRefusal> {
        let now = self.now();
        let asked = request.clone();
        let submitted = match self.file().change(|queue| queue.submit(request, now)) {
            Ok(submitted) => submitted,
            Err(error) => Err(SubmitRefusal::NotKept(error.to_string())),
        };
        match &submitted {
            Ok(_) => self.wake(),
            Err(refused @ SubmitRefusal::Disabled { .. })
                if !self.inner.spool.contains(asked.id) =>
            {
                let run = QueuedRun::of(asked, now);
                self.report_unstarted(&run, RunEnding::Disabled, refused.to_string());
            }
            Err(_) => {}
        }
        submitted
    }

    /// Requests a run of the configured method, for a cause of this node.
    pub(crate) fn ask(&self, cause: Cause) -> Result<SubmitOutcome, SubmitRefusal> {
        if let Some(Administration::Disabled { by, reason, .. }) =
            &self.file().queue().administration
        {
            return Err(SubmitRefusal::Disabled {
                by: by.clone(),
                reason: reason.clone(),
            });
        }
        self.submit(RunRequest {
            subject: RunSubject::configured(),
            ..RunRequest::new(NodeRunId(Uuid::now_v7()), vec![cause])
        })
    }

    /// Removes a run from the queue, or stops it if it is active.
    pub(crate) fn cancel(&self, run: NodeRunId, reason: &str) -> io::Result<CancelOutcome> {
        let found = self.file().change(|queue| queue.cancel(run))?;
        match &found {
            CancelOutcome::Pending(run) => {
                self.report_unstarted(run, RunEnding::Cancelled, reason.to_owned());
            }
            CancelOutcome::Running => {
                let mut current = self.current();
                current.reason = Some(reason.to_owned());
                if let Some((_, stop)) = current.run.as_ref().filter(|(at_work, _)| *at_work == run)
                {
                    stop.cancel();
                }
            }
            CancelOutcome::Folded { .. } | CancelOutcome::Nowhere => {}
        }
        self.inner.changed.notify_one();
        Ok(found)
    }

    /// Records the administration state that a server reports for this node. It is kept for times
    /// when no server can be reached.
    pub(crate) fn administer(&self, administration: Administration) {
        let mut file = self.file();
        let known = file.queue().administration.as_ref() == Some(&administration);
        if !known {
            file.change_anyway(|queue| queue.administration = Some(administration));
        }
    }

    /// Notes that servers counted this node as lost. The report of the active run says so too: an
    /// ordered run may have given it up.
    pub(crate) fn was_lost(&self, lost: &LostNotice) {
        let LostNotice { since, reason } = lost;
        tracing::warn!(%since, reason, "servers counted this node as lost");
        if let Some(recorder) = &self.current().recorder {
            let text = format!("servers counted this node as lost since {since}: {reason}");
            recorder.log("warning", None, &text);
        }
    }

    /// Returns the current activity of this node.
    pub(crate) fn activity(&self) -> Activity {
        let current = self.current();
        match &current.run {
            None => Activity::Idle {
                since: current.since,
            },
            Some((run, _)) => Activity::Running {
                since: current.since,
                what: format!("run {run}"),
            },
        }
    }

    pub(crate) fn report(&self) -> QueueReport {
        let held_by = self.held_by();
        QueueReport {
            held_by,
            ..self.file().queue().report()
        }
    }

    fn wake(&self) {
        self.inner.queued.notify_one();
        self.inner.changed.notify_one();
    }

    /// Returns the reason why the run must change nothing, if there is one. If the request names
    /// no mode, the settings and the windows decide.
    fn noop_reason(&self, request: &RunRequest) -> Option<NoopReason> {
        let settings = &self.inner.settings;
        match request.mode {
            Some(RunMode::Noop) => Some(NoopReason::Request),
            Some(RunMode::Enforce) => None,
            None if settings.noop => Some(NoopReason::Agent),
            None if !settings.windows.are_open(self.now()) => Some(NoopReason::Window),
            None => None,
        }
    }

    fn method(&self, subject: &RunSubject) -> &Arc<dyn RunMethod> {
        match subject {
            RunSubject::Released | RunSubject::Catalog { .. } => &self.inner.methods.engine,
            RunSubject::Configured { .. } => &self.inner.methods.configured,
        }
    }

    fn file(&self) -> MutexGuard<'_, QueueFile> {
        (self.inner.file.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Option<hold::ActiveHold>> {
        (self.inner.held.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, ActiveRun> {
        (self.inner.current.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
