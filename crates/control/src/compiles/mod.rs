//! Compiling ahead of time: what was compiled for each node.

mod compiled;

pub use compiled::{CompileFailed, CompileProblem, Compiled};
