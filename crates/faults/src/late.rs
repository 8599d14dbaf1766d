//! Late messages: while a file says so, a server handles every request, reply, commit, read and
//! watch event late.
//!
//! The delays are those of `bunraku-delayed`: usually a little, sometimes a lot.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bunraku_testkit::Chance;

/// Names the file. It has a seed in it while messages are late, and is empty otherwise.
pub const FILE: &str = "BUNRAKU_FAULTS_LATE";

const USUAL: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_millis(250);
/// The percentage of long delays.
const OFTEN: usize = 4;
/// The time for which the file is not read again.
const CACHED: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Lateness {
    read: Option<Instant>,
    chance: Option<Chance>,
    /// The number of messages that were delayed.
    count: u64,
}

/// Returns one delay.
pub fn next(chance: &Chance) -> Duration {
    chance.up_to(if chance.happens(OFTEN) { LONG } else { USUAL })
}

/// Returns the delay of the next message of this process.
pub fn delay() -> Duration {
    static FILE_PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    static LATENESS: Mutex<Lateness> = Mutex::new(Lateness {
        read: None,
        chance: None,
        count: 0,
    });
    let file = FILE_PATH.get_or_init(|| std::env::var_os(FILE).map(PathBuf::from));
    let Some(file) = file else {
        return Duration::ZERO;
    };
    let mut lateness = LATENESS.lock().unwrap_or_else(PoisonError::into_inner);
    if lateness.read.is_none_or(|read| read.elapsed() > CACHED) {
        lateness.read = Some(Instant::now());
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let seed = text.trim().parse().ok();
        if lateness.chance.is_some() != seed.is_some() {
            lateness.chance = seed.map(Chance::new);
        }
        if lateness.count > 0 {
            // For the checker: a fault that delays nothing is not a fault. Replaced in one step,
            // because the checker may read it at any time.
            let new = file.with_extension("delayed.new");
            let _ = std::fs::write(&new, lateness.count.to_string())
                .and_then(|()| std::fs::rename(&new, file.with_extension("delayed")));
        }
    }
    let Some(chance) = &lateness.chance else {
        return Duration::ZERO;
    };
    let delay = next(chance);
    lateness.count += 1;
    delay
}
