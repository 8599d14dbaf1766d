//! The services by which nodes cue each other: triggers, reactors, locks, and once tasks.
//!
//! Absent here: catalogs and releases (`compile`), and the API (`server`).

pub mod due;
pub mod locks;
pub mod once;
mod permission;
pub mod reactors;
pub mod triggers;

pub use locks::Locks;
pub use once::Once;
pub use permission::CueCaller;
pub use reactors::Reactors;
pub use triggers::Triggers;
pub use triggers::chain as chains;
