//! The datastore role: a managed etcd process on the servers that have the role.
//!
//! A server runs the datastore of its [`DatastoreOrder`], or none if it has no order. Each
//! order has its own data directory. The order names the directory, and a fence
//! file in it protects it: data of another order, epoch or cluster is never opened.
//!
//! Not here: choosing the servers that get the role (`failover`).

mod admin;
mod data;
mod installed;
mod process;
mod snapshot;
mod supervise;
mod view;

pub use crate::order::{ClusterState, DatastoreOrder};
pub use admin::{Admin, AdminError, DatastoreStatus, ListedMember};
pub use data::DataError;
pub(crate) use data::exists as has_data;
pub use installed::Inspector;
pub use process::{ProcessError, Program};
pub use snapshot::{SnapshotError, Snapshots, restore, save, verify};
pub use supervise::{DatastoreState, Supervisor};
pub use view::{View, ViewError};
