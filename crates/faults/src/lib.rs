//! Real servers in network namespaces, under faults that a seed decides, and a
//! checker over what their clients saw.
//!
//! [`stage`] makes the namespaces and cleans up, whatever happens inside;
//! [`run`] starts a cluster there, lets [`workload`] work and breaks things;
//! [`checker`] is pure: a [`history::History`] in, what is wrong with it out.
//!
//! Absent: mocks. Servers, agents and etcd are processes, disks are mounts,
//! links are links.

pub mod checker;
pub mod fault;
pub mod history;
mod machine;
mod network;
pub mod plant;
pub mod run;
mod site;
pub mod stage;
mod tool;
mod workload;
