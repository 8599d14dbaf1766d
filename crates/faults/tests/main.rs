//! Tests of the checker, and of real servers under faults.

mod checker;
mod faults;
mod incidents;
mod plan;
