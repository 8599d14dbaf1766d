//! Signals that end this process.

use bunraku_process::Signal;

use crate::failure::Failure;

/// Resolves when the process is asked to end. A second request ends it at once.
pub(crate) async fn termination_signal() -> Result<&'static str, std::io::Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(name)
}

/// Asks the kernel to end this process when its parent ends, even by `kill -9`.
///
/// The parent may already be gone before the kernel was asked. This process then has another parent
/// and ends itself.
pub(crate) fn end_with_parent(parent: Option<i32>) -> Result<(), Failure> {
    let Some(parent) = parent else {
        return Ok(());
    };
    let signal = rustix::process::Signal::TERM;
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now == Some(parent) {
        Ok(())
    } else {
        Err(Failure::new("the parent process has ended"))
    }
}

/// Every signal that asks this process to end.
pub(crate) struct EndSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl EndSignals {
    pub(crate) fn new() -> Result<Self, std::io::Error> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
