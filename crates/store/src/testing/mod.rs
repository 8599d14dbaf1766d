//! Support for the tests of this and other crates: real etcd members, S3 servers and a real
//! PostgreSQL on loopback, a proxy with faults, a store and a history in memory, a store that is
//! cut off in the middle, one with delays, one with a concurrent writer, one that counts its calls,
//! and their common base.
//!
//! Everything here panics with a message when the machine lacks something: a test that cannot run
//! must not look like one that passed.

mod authority;
mod cut_store;
mod delayed_store;
mod etcd_cluster;
mod etcd_member;
mod fault_proxy;
mod meddled_store;
mod memory_history;
mod memory_store;
mod overlay;
mod postgresql_server;
mod s3_server;
mod write_counter;

pub use authority::TestAuthority;
pub use cut_store::{CutPoint, CutStore};
pub use delayed_store::{Delay, DelayedStore};
pub use etcd_cluster::EtcdCluster;
pub use etcd_member::free_port;
pub use fault_proxy::{FaultProxy, ProxyFault};
pub use meddled_store::InterferingStore;
pub use memory_history::MemoryHistory;
pub use memory_store::MemoryStore;
pub use overlay::{Call, CallWork, Overlay};
pub use postgresql_server::PostgresqlServer;
pub use s3_server::S3Server;
pub use write_counter::WriteCounter;
