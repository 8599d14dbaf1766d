//! A line on the terminal while a command waits.
//!
//! It appears when nothing was printed for a second, and disappears before the next line. Without a
//! terminal, and with `--json`, there is none.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing must be printed before the line appears.
const SILENCE: Duration = Duration::from_secs(1);
/// The interval between redraws.
const REDRAW: Duration = Duration::from_millis(200);

static LINE: Mutex<WaitingLine> = Mutex::new(WaitingLine {
    label: String::new(),
    silent_since: None,
    is_drawn: false,
    hidden: 0,
});

struct WaitingLine {
    label: String,
    /// The time of the last output, while someone waits.
    silent_since: Option<Instant>,
    is_drawn: bool,
    /// How many others use the terminal.
    hidden: u32,
}

impl WaitingLine {
    fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            print("\r\x1b[K");
        }
    }

    fn draw(&mut self) {
        let Some(silent_since) = self.silent_since else {
            return;
        };
        let waited = silent_since.elapsed();
        if self.hidden == 0 && waited >= SILENCE {
            let label = match self.label.as_str() {
                "" => "waiting for the server",
                label => label,
            };
            let columns = crate::terminal::columns(&std::io::stderr()).unwrap_or(80);
            let text = format!("… {label} ({} s)", waited.as_secs());
            let text: String = text.chars().take(columns.saturating_sub(1)).collect();
            print(&format!("\r\x1b[K{text}"));
            self.is_drawn = true;
        }
    }
}

fn print(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

fn line() -> std::sync::MutexGuard<'static, WaitingLine> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the line. Everything that prints calls this first.
pub(crate) fn before_output() {
    let mut line = line();
    line.erase();
    if line.silent_since.is_some() {
        line.silent_since = Some(Instant::now());
    }
}

/// Says what the command waits for from now on.
pub(crate) fn for_what(label: &str) {
    label.clone_into(&mut line().label);
}

/// While this exists, someone else uses the terminal.
pub(crate) struct TerminalInUse(());

impl TerminalInUse {
    pub(crate) fn new() -> Self {
        let mut line = line();
        line.erase();
        line.hidden += 1;
        Self(())
    }
}

impl Drop for TerminalInUse {
    fn drop(&mut self) {
        line().hidden -= 1;
    }
}

/// Shows the line while the work takes long.
pub(crate) async fn shown<T>(work: impl Future<Output = T>) -> T {
    if crate::json_mode::is_on() || !std::io::stderr().is_terminal() {
        return work.await;
    }
    line().silent_since = Some(Instant::now());
    let mut work = pin!(work);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut work => break result,
            () = tokio::time::sleep(REDRAW) => line().draw(),
        }
    };
    let mut line = line();
    line.erase();
    line.silent_since = None;
    result
}
