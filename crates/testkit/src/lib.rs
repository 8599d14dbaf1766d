//! Waits, randomness, Puppet set-ups and shell words for the tests of every crate. Development only.
//!
//! A test waits for a condition, never for a duration: [`eventually`] and
//! [`appears`] look until the condition holds, and fail with the caller's location
//! when it does not. [`blocking`] has the same for tests without a runtime. Helpers
//! for a single crate are in that crate (`bunraku_store::testing`).

pub mod blocking;
mod chance;
mod puppet;
mod shell;

use std::panic::Location;
use std::time::Duration;

pub use chance::Chance;
pub use puppet::puppet_options;
pub use shell::shell_words;

/// The time limit for everything that must happen. It is long on purpose: a busy
/// machine is slow, and only a test that fails anyway waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The pause after the first look; each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Waits for a future that must end.
#[track_caller]
pub fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(value) => value,
            Err(_) => panic!("{caller}: it did not happen within {PATIENCE:?}"),
        }
    }
}

/// Looks until the condition holds.
#[track_caller]
pub fn eventually(mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    appears(async move || holds().await.then_some(()))
}

/// Looks until there is something, and returns it.
#[track_caller]
pub fn appears<T>(mut look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    soon(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    })
}
