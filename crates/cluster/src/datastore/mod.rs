//! The datastore role: an etcd process of our own, on the servers that have it.
//!
//! A server runs what its [`Order`] says, and nothing when it has none. Each
//! order has a data directory of its own, named by the order and fenced by a
//! file in it: data of another order, epoch or cluster is never opened.
//!
//! Absent: who gets the role (`failover`).

mod admin;
mod data;
mod installed;
mod process;
mod snapshot;
mod supervise;
mod view;

pub use crate::order::{ClusterState, Order};
pub use admin::{Admin, AdminError, ListedMember, Standing};
pub use data::DataError;
pub(crate) use data::exists as has_data;
pub use installed::Inspector;
pub use process::{ProcessError, Program};
pub use snapshot::{SnapshotError, Snapshots, restore, save, verify};
pub use supervise::{DatastoreState, Supervisor};
pub use view::{View, ViewError};
