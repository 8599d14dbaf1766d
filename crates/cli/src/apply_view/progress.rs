//! Live progress on a terminal: what is running, for how long, and how many resources are left.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bunraku_engine::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The number of running resources shown. More do not fit on a line.
const SHOWN: usize = 3;

pub(super) struct Progress {
    bar: ProgressBar,
    running: Mutex<Vec<(String, Instant)>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style =
            ProgressStyle::with_template("{spinner} {pos}/{len} {wide_bar} {elapsed}  {msg}");
        bar.set_style(style.expect("a fixed template"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            bar,
            running: Mutex::default(),
        }
    }

    pub(super) fn update(&self, event: &Event<'_>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begun { resources, .. } => self.bar.set_length(*resources as u64),
            Event::Started { reference, .. } => {
                running.push((reference.to_string(), Instant::now()))
            }
            Event::Finished(finished) => {
                let name = finished.reference.to_string();
                running.retain(|(other, _)| *other != name);
                self.bar.inc(1);
            }
            Event::Output { .. } | Event::Retrying(_) => return,
        }
        let mut message: Vec<String> = (running.iter().take(SHOWN))
            .map(|(name, since)| format!("{name} {} s", since.elapsed().as_secs()))
            .collect();
        if running.len() > SHOWN {
            message.push(format!("{} more", running.len() - SHOWN));
        }
        self.bar.set_message(message.join(", "));
    }

    pub(super) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
