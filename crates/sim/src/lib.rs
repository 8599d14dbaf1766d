//! A whole fleet in one process: real services, run queues, spools and report
//! delivery; a network that loses, duplicates, delays and reorders messages; and
//! servers and agents that are killed anywhere. Development only.
//!
//! All randomness comes from one seed, and time is the runtime's paused clock, so
//! that a failed seed can be replayed. The invariants are in [`Checker`], [`CueChecker`] and
//! [`AuditChecker`].
//! [`simulate`] runs a fleet and panics with the seed when an invariant does not
//! hold.
//!
//! Not here: HTTP and TLS, and machines that are changed. An agent holds a real command stream,
//! and asks for its target now and then.

mod agent;
mod audit_checker;
mod bug;
mod checker;
mod compiler;
mod cue_checker;
mod cues;
mod fleet;
mod jitter_history;
mod jitter_store;
mod servers;
mod strike;

pub use audit_checker::AuditChecker;
pub use bug::Bug;
pub use bunraku_testkit::Chance;
pub use checker::Checker;
pub use compiler::CountingCompiler;
pub use cue_checker::CueChecker;
pub use fleet::{Fleet, FleetCounts, SimulationOptions, simulate};
pub use strike::{KillPoint, Moment};
