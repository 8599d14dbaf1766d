//! What the demo is made of: the processes, and what people see of them.

mod cluster;
mod code;
mod fleet;
mod process;
mod stage;
mod takeover;

pub(crate) use fleet::Fleet;
pub(crate) use stage::Stage;
