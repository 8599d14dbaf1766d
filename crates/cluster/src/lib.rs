//! Which servers are members, which of them keep the data, and what happens
//! when one of those is lost.
//!
//! [`membership`] says who is alive (SWIM). [`failover`] decides, as a pure
//! function, what to do about it. [`datastore`] starts and watches etcd on
//! the servers that have the role. [`transport`] carries messages between
//! members.
//!
//! Absent: the HTTP API and its routes (`control`), and any decision about
//! nodes. A member never needs the store to start: what it must know before
//! the store answers is in its own [`directory`].

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
