//! One file per command: its arguments, and the function that runs it.
//!
//! Nothing below uses a command. What several commands need is in a module
//! beside this one.

pub(crate) mod access;
pub(crate) mod agent;
pub(crate) mod apply;
mod apply_ssh;
pub(crate) mod approval;
pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod backup;
pub(crate) mod bound;
pub(crate) mod catalog;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod code_worker;
pub(crate) mod compile;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod context;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod environment;
pub(crate) mod facts;
pub(crate) mod isolated;
pub(crate) mod lock;
pub(crate) mod man;
mod member;
pub(crate) mod module;
pub(crate) mod node;
mod node_add;
mod node_list;
mod node_queue;
mod node_run;
pub(crate) mod once;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod reactor;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod repository;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod signer;
pub(crate) mod states;
pub(crate) mod status;
pub(crate) mod store;
mod store_history;
pub(crate) mod token;
pub(crate) mod trigger;
pub(crate) mod version;
