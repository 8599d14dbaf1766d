//! One file per resource type of the API.

pub(super) mod access;
pub(super) mod approvals;
pub(super) mod audit;
pub(super) mod authority;
pub(crate) mod catalogs;
pub(super) mod certificates;
pub(super) mod cluster;
pub(super) mod commands;
pub(super) mod compiles;
pub(super) mod content;
pub(super) mod environments;
pub(super) mod facts;
pub(crate) mod history;
pub(super) mod join;
pub(super) mod locks;
pub(super) mod modules;
pub(super) mod nodes;
pub(super) mod once;
pub(super) mod outputs;
pub(super) mod query;
pub(super) mod reactors;
pub(super) mod releases;
pub(super) mod reports;
pub(super) mod repositories;
pub(super) mod restore;
pub(super) mod runs;
pub(super) mod server;
pub(super) mod store;
pub(super) mod targets;
pub(super) mod tokens;
pub(super) mod triggers;

pub(crate) use crate::services::Services;

/// Returns the time that a reply may be delayed, at most one minute.
fn longest_wait(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds.min(60))
}
