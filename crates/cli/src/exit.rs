//! What an exit code means. Never 0 on an error.

use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, or nothing to do.
    Done = 0,
    Error = 1,
    /// There are differences, where that was asked.
    Changes = 2,
    /// Some nodes failed or were lost.
    SomeNodesFailed = 3,
    /// By policy, or because a plan is stale.
    Refused = 4,
    Usage = 64,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
