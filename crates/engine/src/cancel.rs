//! Stopping a run: a flag that can also be waited for together with files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

/// A stop request, shared by the run and the code that stops it.
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cancelled: AtomicBool,
    readable_when_cancelled: OwnedFd,
    write_end: OwnedFd,
}

impl Cancellation {
    /// Creates a stop request. Fails only when the process has no file descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner {
            cancelled: AtomicBool::new(false),
            readable_when_cancelled: read_end,
            write_end,
        })))
    }

    /// Asks the run to stop. Calling it twice changes nothing.
    pub fn cancel(&self) {
        if !self.0.cancelled.swap(true, Ordering::SeqCst) {
            // The pipe is empty before the first byte, so this cannot block or fail.
            let _ = rustix::io::write(&self.0.write_end, b"x");
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Returns a file that becomes readable, and stays so, once the run should stop.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.0.readable_when_cancelled.as_fd()
    }

    /// Sleeps, and wakes early when the run should stop. Returns true if it should stop.
    pub fn sleep(&self, duration: std::time::Duration) -> bool {
        let mut files = [rustix::event::PollFd::from_borrowed_fd(
            self.readable(),
            rustix::event::PollFlags::IN,
        )];
        let deadline = std::time::Instant::now() + duration;
        while !self.is_cancelled() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            let timeout = rustix::event::Timespec::try_from(left).ok();
            // An interrupted wait is simply repeated with the remaining time.
            let _ = rustix::event::poll(&mut files, timeout.as_ref());
        }
        self.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_sleep_ends_when_the_run_is_cancelled() {
        let cancellation = Cancellation::new().expect("a pipe");
        assert!(!cancellation.sleep(Duration::from_millis(1)));
        let other = cancellation.clone();
        let sleeper = std::thread::spawn(move || other.sleep(Duration::from_secs(600)));
        cancellation.cancel();
        cancellation.cancel();
        assert!(sleeper.join().expect("no panic"));
    }
}
