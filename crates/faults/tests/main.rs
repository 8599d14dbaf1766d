//! What the checker finds, and real servers under faults.

mod checker;
mod faults;
mod plan;
