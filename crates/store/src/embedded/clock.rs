//! The two clocks that leases need.
//!
//! While the machine is up, leases are counted on the time since boot, which
//! nobody can set. The wall clock only bridges a reboot.

use std::time::Duration;

/// Where the embedded store reads time. Tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Never goes back and never jumps; goes on while the machine sleeps.
    fn since_boot(&self) -> Duration;

    /// Since 1970. May be set by anyone, at any time, to anything.
    fn wall(&self) -> Duration;

    /// Which boot [`Clock::since_boot`] counts from.
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

    /// Where the kernel does not tell, every start counts as another boot: leases
    /// then go by the wall clock.
    fn boot(&self) -> String {
        match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(id) => id.trim().to_owned(),
            Err(_) => uuid::Uuid::new_v4().to_string(),
        }
    }
}
