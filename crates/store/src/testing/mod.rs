//! Real peers for tests: etcd members on loopback.
//!
//! Everything here panics with a message when the machine lacks something:
//! a test that cannot run must not look like one that passed.

mod authority;
mod etcd_cluster;
mod etcd_member;

pub use authority::TestAuthority;
pub use etcd_cluster::EtcdCluster;
