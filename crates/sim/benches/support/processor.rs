//! The processor time of this process, all threads together: unlike wall time, it
//! is nearly the same on a busy machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("it only grows");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(seconds, nanoseconds)
}
