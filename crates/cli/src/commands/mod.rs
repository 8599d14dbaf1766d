//! One file for each command.

pub(crate) mod apply;
pub(crate) mod restore;
pub(crate) mod states;
