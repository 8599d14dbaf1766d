//! For the tests of this and other crates: real etcd members on loopback, a
//! store in memory, and one that is cut off in the middle.
//!
//! Everything here panics with a message when the machine lacks something:
//! a test that cannot run must not look like one that passed.

mod authority;
mod cut_store;
mod etcd_cluster;
mod etcd_member;
mod memory_store;

pub use authority::TestAuthority;
pub use cut_store::{Cut, CutStore};
pub use etcd_cluster::EtcdCluster;
pub use etcd_member::free_port;
pub use memory_store::MemoryStore;
