//! A whole fleet in one process: real services, real run queues, spools and
//! delivery of reports, a network that loses, doubles, delays and reorders, and
//! servers and agents that are killed anywhere. Development only.
//!
//! Everything that happens by chance comes from one seed, and time is the
//! runtime's paused clock, so that a seed that fails can be looked at again.
//! What must hold, whatever happens, is in [`Checker`]; [`simulate`] runs a
//! fleet and panics with the seed when something does not.
//!
//! Absent: HTTP and TLS, machines that are changed, and an agent's stream (it
//! asks now and then instead).

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
