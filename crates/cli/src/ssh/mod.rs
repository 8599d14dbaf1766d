//! Access to other machines through the system's own `ssh`, so that keys, agents, jump hosts and
//! `~/.ssh/config` work as configured.
//!
//! One connection is opened and shared by all commands of one call. Scripts go to the remote `sh`;
//! everything variable in them is quoted by [`quoted`].
//!
//! Absent on purpose: our own implementation of the SSH protocol, and passwords.

mod binary;
mod connection;
mod join;
mod quoting;

pub(crate) use binary::Binary;
pub(crate) use connection::{SshArgs, SshConnection, Upload};
pub(crate) use join::JoinOverSsh;
pub(crate) use quoting::quoted;
