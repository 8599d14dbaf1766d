//! The output of the demo: acts and their events, with the time since the start.

use std::io::IsTerminal;
use std::time::Instant;

pub(crate) struct Stage {
    started: Instant,
    act: u32,
    colour: bool,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            act: 0,
            colour: std::io::stdout().is_terminal(),
        }
    }

    pub(crate) fn act(&mut self, what: &str) {
        self.act += 1;
        let (bold, reset) = if self.colour {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        anstream::println!("\n{bold}{}. {what}{reset}", self.act);
    }

    /// Prints an event.
    pub(crate) fn note(&self, what: &str) {
        anstream::println!("  {:>6.2} s  {what}", self.started.elapsed().as_secs_f64());
    }

    /// Prints text unchanged.
    pub(crate) fn text(&self, text: &str) {
        for line in text.lines() {
            anstream::println!("            {line}");
        }
    }
}
