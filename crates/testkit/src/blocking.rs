//! Waits for tests that have no asynchronous runtime.

use std::time::Instant;

use crate::{FIRST_PAUSE, LONGEST_PAUSE, PATIENCE};

/// Looks until the condition holds.
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_or(what, holds, String::new);
}

/// Looks until the condition holds. The failure shows what `why` returns.
#[track_caller]
pub fn eventually_or(what: &str, mut holds: impl FnMut() -> bool, why: impl Fn() -> String) {
    appears_or(what, || holds().then_some(()), why);
}

/// Looks until there is something, and returns it.
#[track_caller]
pub fn appears<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    appears_or(what, look, String::new)
}

#[track_caller]
fn appears_or<T>(what: &str, mut look: impl FnMut() -> Option<T>, why: impl Fn() -> String) -> T {
    let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = started.elapsed();
        assert!(
            waited < PATIENCE,
            "{what}: not within {PATIENCE:?}\n{}",
            why()
        );
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}
