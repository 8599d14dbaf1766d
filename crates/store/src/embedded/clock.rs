//! The two clocks that leases need.
//!
//! While the machine is up, leases use the time since boot, which nobody can set. The wall clock is
//! used only across a reboot.

use std::time::Duration;

/// The embedded store's source of time. Tests provide their own.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since boot. It never goes back and never jumps, and it keeps counting while
    /// the machine sleeps.
    fn since_boot(&self) -> Duration;

    /// Returns the time since 1970. Anyone may set it, at any time, to anything.
    fn wall(&self) -> Duration;

    /// Returns the id of the boot that [`Clock::since_boot`] counts from.
    fn boot(&self) -> String;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn since_boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
    }

    fn wall(&self) -> Duration {
        let milliseconds = jiff::Timestamp::now().as_millisecond();
        Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
    }

    /// If the kernel has no boot id, every start counts as another boot, and leases use the wall
    /// clock.
    fn boot(&self) -> String {
        match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(id) => id.trim().to_owned(),
            Err(_) => uuid::Uuid::new_v4().to_string(),
        }
    }
}
