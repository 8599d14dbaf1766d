//! Cluster membership: which servers are members, which of them keep the data, and
//! how the loss of one of those is handled.
//!
//! [`membership`] tracks who is alive (SWIM). [`failover`] decides, as a pure
//! function, how to react. [`datastore`] starts and supervises etcd on the servers
//! that have the role. [`transport`] delivers messages between members.
//!
//! Not here: the HTTP API and its routes (`control`), and any decision about nodes.
//! A member never needs the store to start: the data that it needs before the store
//! answers is in its own [`directory`].

pub mod datastore;
pub mod directory;
pub mod failover;
pub mod identity;
pub mod member;
pub mod membership;
pub mod operator;
pub mod order;
pub mod recover;
pub mod setup;
pub mod transport;
