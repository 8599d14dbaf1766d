//! A whole fleet in one process: real services, run queues, spools and report
//! delivery; a network that loses, duplicates, delays and reorders messages; and
//! servers and agents that are killed anywhere. Development only.
//!
//! All randomness comes from one seed, and time is the runtime's paused clock, so
//! that a failed seed can be replayed. The invariants are in [`Checker`].
//! [`simulate`] runs a fleet and panics with the seed when an invariant does not
//! hold.
//!
//! Not here: HTTP and TLS, machines that are changed, and an agent's stream (it
//! polls now and then instead).

mod agent;
mod bug;
mod checker;
mod compiler;
mod fleet;
mod jitter_store;
mod servers;
mod strike;

pub use bug::Bug;
pub use bunraku_testkit::Chance;
pub use checker::Checker;
pub use compiler::CountingCompiler;
pub use fleet::{Fleet, Plan, Seen, simulate};
pub use strike::{Moment, When};
