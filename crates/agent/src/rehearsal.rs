//! An agent's runs and reports without its network and its machine, for simulations.
//!
//! It uses the same queue, worker, spool and delivery as [`crate::run`]. Dropping
//! [`Rehearsal::work`] has the same effect as `kill -9` on an agent: the next process has only the
//! content of the directory.

use std::path::Path;
use std::sync::Arc;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{NodeHold, RunRequest};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::reports::{Spool, deliver};
use crate::runs::{QueueFile, Runs};
use crate::{AgentError, Methods, ReportsTo, RunSettings, SpoolOptions};

/// One process lifetime of an agent.
#[derive(Clone)]
pub struct Rehearsal {
    runs: Runs,
    spool: Arc<Spool>,
}

impl Rehearsal {
    /// Opens the directory, with the state that an earlier process left in it.
    pub fn open(
        directory: &Path,
        methods: Methods,
        settings: RunSettings,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        let options = SpoolOptions::default();
        let spool = Spool::open_with_clock(&directory.join("spool"), options, Box::new(clock))?;
        let file = QueueFile::open(directory)?;
        let runs = Runs::new(file, Arc::clone(&spool), methods, settings);
        Ok(Self { runs, spool })
    }

    /// Adds a request to the queue, durably. Returns false if it is refused.
    pub fn submit(&self, request: RunRequest) -> bool {
        self.runs.submit(request).is_ok()
    }

    /// Ends a run, wherever it is.
    pub fn cancel(&self, run: NodeRunId, reason: &str) {
        if let Err(error) = self.runs.cancel(run, reason) {
            tracing::warn!(%run, %error, "the queue cannot be written");
        }
    }

    /// Records which ordered run holds this node, as a server reports it.
    pub fn hold(&self, hold: Option<NodeHold>) {
        self.runs.hold(hold);
    }

    /// Applies runs and delivers reports, until dropped.
    pub async fn work(&self, to: &dyn ReportsTo) {
        let forever = CancellationToken::new();
        let (_connected, connected) = watch::channel(true);
        tokio::join!(
            self.runs.work(&forever),
            deliver(to, connected, &self.spool, &forever),
        );
    }

    /// Returns whether nothing is pending, nothing runs, and a server has every report.
    pub fn is_at_rest(&self) -> bool {
        let queue = self.runs.report();
        queue.running.is_none() && queue.pending.is_empty() && self.spool.is_empty()
    }
}
