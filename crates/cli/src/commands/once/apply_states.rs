//! A once task that is a state file: applied in this process, for as long as the claim lasts.

use std::future::Future;
use std::sync::Arc;

use bunraku_engine::{Cancellation, CommandSetting};
use tokio::sync::oneshot;

use crate::apply_view::Printer;
use crate::bound_child::{GRACE, ProgramEnd};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::local_apply::{ApplyArgs, LocalApply};
use crate::signals::EndSignals;
use crate::task_log::TaskLog;

/// The stack size of a program's main thread. A deep state tree needs as much here.
const STACK: usize = 8 * 1024 * 1024;

/// The states to apply.
pub(super) struct StatesJob {
    pub(super) file: String,
    /// Environment variables for commands and templates.
    pub(super) environment: Vec<(String, String)>,
    pub(super) fleet: Arc<Fleet>,
}

impl StatesJob {
    /// Applies the states until they are done, or `lost` resolves with the reason why the claim
    /// was lost. A signal ends the step in progress and starts no other. A second signal ends this
    /// process.
    pub(super) async fn run(
        self,
        log: &TaskLog,
        lost: impl Future<Output = String>,
    ) -> Result<ProgramEnd, Failure> {
        let arguments = ApplyArgs::of_path(&self.file)?;
        let cancellation = Cancellation::new()?;
        let apply = LocalApply {
            fleet: self.fleet,
            json: false,
            printer: Printer::with_log(log.clone()),
            cancellation: cancellation.clone(),
            listen_for_signals: false,
            commands: CommandSetting {
                environment: self.environment,
                end_with_us: true,
            },
        };
        let mut signals = EndSignals::new()?;
        let (send, mut done) = oneshot::channel();
        // A thread of its own, and not the runtime's: this process must be able to end without
        // waiting for a step that cannot be interrupted.
        std::thread::Builder::new()
            .name("apply".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                // Nothing waits for the result if the claim was lost.
                let _ = send.send(apply.run(&arguments));
            })?;
        tokio::pin!(lost);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                exit = &mut done => {
                    let exit = exit.map_err(|_| Failure::new("the apply broke off"))?;
                    return Ok(ProgramEnd::Exit(exit as u8));
                }
                why = &mut lost => {
                    cancellation.cancel();
                    let _ = tokio::time::timeout(GRACE, done).await;
                    return Ok(ProgramEnd::Lost(why));
                }
                _ = signals.next() => {
                    if is_cancelled {
                        return Err(Failure::new("the apply was interrupted twice"));
                    }
                    is_cancelled = true;
                    cancellation.cancel();
                }
            }
        }
    }
}
