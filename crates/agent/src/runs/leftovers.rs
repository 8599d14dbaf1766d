//! Processes that a run of an earlier agent left behind.
//!
//! An agent that was killed leaves the programs of its run behind. They end before the next run
//! starts, because the two would change the machine at the same time. A process that cannot be
//! ended is waited for, by name.

use std::time::Duration;

use bunraku_process::{LeftProcess, WorkLog};

/// The time between asking a process to end and killing it.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which processes that cannot be ended are looked for.
const LOOK: Duration = Duration::from_secs(2);

/// The processes that a run waits for before it starts.
#[derive(Default)]
pub(super) struct Leftovers {
    left: Vec<LeftProcess>,
}

impl Leftovers {
    /// Ends the processes of earlier runs, and waits until all of them have ended.
    pub(super) async fn end(&mut self, log: &WorkLog) {
        loop {
            let log = log.clone();
            let ended = tokio::task::spawn_blocking(move || log.end_leftovers(GRACE)).await;
            let left = match ended {
                Ok(Ok(left)) => left,
                Ok(Err(error)) => {
                    tracing::error!(error = %error, "cannot read which processes an earlier run left behind");
                    Vec::new()
                }
                Err(error) => {
                    tracing::error!(error = %error, "cannot end what an earlier run left behind");
                    Vec::new()
                }
            };
            if left != self.left {
                self.left = left;
                if !self.left.is_empty() {
                    tracing::warn!(
                        left = self.list(),
                        "a run waits for processes of an earlier run, which cannot be ended"
                    );
                }
            }
            if self.left.is_empty() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Adds what the run waited for to the reason why it did not start.
    pub(super) fn explain(&self, message: String) -> String {
        if self.left.is_empty() {
            return message;
        }
        format!(
            "{message}; it waited for {}, of an earlier run",
            self.list()
        )
    }

    fn list(&self) -> String {
        let left: Vec<String> = self.left.iter().map(LeftProcess::to_string).collect();
        left.join(", ")
    }
}
