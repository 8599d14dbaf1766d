//! The meaning of exit codes. An error is never 0.

use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Success, or nothing to do.
    Done = 0,
    Error = 1,
    /// There are differences, if the command reports that.
    Changes = 2,
    /// Some nodes failed or were lost.
    SomeNodesFailed = 3,
    /// Refused by policy, or because a plan is stale.
    Refused = 4,
    Usage = 64,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
