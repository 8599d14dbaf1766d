//! The end of a task's output, which is kept for later queries.

use std::sync::{Arc, Mutex, PoisonError};

use bunraku_process::Tail;

/// The number of bytes kept from the end of the output.
const KEPT: usize = 64 * 1024;

/// The end of a task's output. Clones share it.
#[derive(Clone)]
pub(crate) struct TaskLog(Arc<Mutex<Printed>>);

struct Printed {
    tail: Tail,
    /// Output was added since it was last taken.
    grew: bool,
}

impl Default for TaskLog {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Printed {
            tail: Tail::new(KEPT),
            grew: false,
        })))
    }
}

impl TaskLog {
    fn lock(&self) -> std::sync::MutexGuard<'_, Printed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut printed = self.lock();
        printed.tail.push(bytes);
        printed.grew = true;
    }

    pub(crate) fn text(&self) -> String {
        self.lock().tail.text()
    }

    /// Returns the text if it has grown since the last call.
    pub(crate) fn unsent(&self) -> Option<String> {
        let mut printed = self.lock();
        std::mem::take(&mut printed.grew).then(|| printed.tail.text())
    }
}
