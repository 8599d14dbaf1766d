//! Runs real servers in network namespaces under seeded faults, and checks what their clients saw.
//!
//! [`stage`] creates the namespaces and always cleans up, whatever happens inside.
//! [`run`] starts a cluster there, runs the [`workload`] and breaks things.
//! [`checker`] is pure: it takes a [`history::History`] and returns the violations.
//!
//! Not here: mocks. Servers, agents and etcd are processes, disks are mounts, links are links.

mod alone;
pub mod checker;
pub mod fault;
pub mod history;
pub mod incident;
pub mod late;
pub mod machine;
mod network;
mod own_node;
pub mod plant;
pub mod run;
mod setup;
mod site;
pub mod stage;
mod tool;
mod workload;
