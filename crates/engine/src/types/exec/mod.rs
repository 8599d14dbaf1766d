//! `exec`, which states call `cmd`: runs a command when its guards want it.

mod pump;
mod run;

pub use run::{Done, Run, RunError, shell};
