//! An agent's runs and reports without its network and its machine: for
//! simulations.
//!
//! The same queue, the same worker, the same spool and the same delivery as in
//! [`crate::run`]. Dropping [`Rehearsal::work`] is what `kill -9` is to an
//! agent: what is in its directory is all that its next life has.

use std::path::Path;
use std::sync::Arc;

use bunraku_wire::api::RunRequest;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::reports::{Spool, deliver};
use crate::runs::{QueueFile, Runs};
use crate::{AgentError, Methods, ReportsTo, RunSettings, SpoolOptions};

/// One life of an agent.
#[derive(Clone)]
pub struct Rehearsal {
    runs: Runs,
    spool: Arc<Spool>,
}

impl Rehearsal {
    /// With what an earlier life left in the directory.
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

    /// Takes a request into the queue, durably. False: it is refused.
    pub fn submit(&self, request: RunRequest) -> bool {
        self.runs.submit(request).is_ok()
    }

    /// Carries out and delivers, until dropped.
    pub async fn work(&self, to: &dyn ReportsTo) {
        let forever = CancellationToken::new();
        let (_connected, connected) = watch::channel(true);
        tokio::join!(
            self.runs.work(&forever),
            deliver(to, connected, &self.spool, &forever),
        );
    }

    /// Nothing waits, nothing is at work, and a server has every report.
    pub fn is_at_rest(&self) -> bool {
        let queue = self.runs.report();
        queue.running.is_none() && queue.pending.is_empty() && self.spool.is_empty()
    }
}
