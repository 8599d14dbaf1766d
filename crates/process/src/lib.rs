//! Child processes: started, bounded and ended in one place.
//!
//! A [`Program`] describes what to start and under which limits. It becomes a [`Child`] for code
//! that runs on tokio, or a [`BlockingChild`] for code that has its own thread. [`Program::output`]
//! covers the common case of one bounded answer. Each child leads its own process group, and the
//! whole group is killed when the handle is dropped.
//!
//! Rule: programs are started only here, so that a further limit (resource limits, namespaces, a
//! control group) has one place, the private `confine` module. Not included: decisions about what
//! to run, logging, and the meaning of exit codes.

#![forbid(unsafe_code)]

mod blocking;
mod capture;
mod child;
mod confine;
mod descendants;
mod group;
mod isolation;
mod output;
mod program;
mod sandbox;
mod status;
mod work;

pub use blocking::{BlockingChild, FollowEnd, WaitEnd, WaitLimits};
pub use capture::{CapturePart, CapturedStream, LineSplitter, Tail};
pub use child::Child;
pub use confine::RunAs;
pub use descendants::end_own_descendants;
pub use group::ProcessGroup;
pub use isolation::Isolation;
pub use output::{Output, OutputError, OutputLimits};
pub use program::Program;
pub use sandbox::{Sandbox, SandboxError, limit_cpu};
pub use status::{describe, shell_code};
pub use work::{LeftProcess, WorkLog};

/// The signals that can be sent to a child.
pub use rustix::process::Signal;

/// The search path of programs that do not inherit one.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One of a child's two output streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}
