//! A whole fleet in one process: real services, simulated agents, a network
//! that loses, doubles, delays and reorders, and servers that are killed
//! anywhere. Development only.
//!
//! Everything that happens by chance comes from one seed, and time is the
//! runtime's paused clock, so that a seed that fails can be looked at again.
//! What must hold, whatever happens, is in [`Checker`]; [`simulate`] runs a
//! fleet and panics with the seed when something does not.

mod agent;
mod chance;
mod checker;
mod compiler;
mod fleet;
mod jitter_store;

pub use chance::Chance;
pub use checker::Checker;
pub use compiler::CountingCompiler;
pub use fleet::{Fleet, Plan, simulate};
