//! The services from code to what each node should apply: environments,
//! compiles, modules, catalogs, diffs, releases and targets; the index that
//! answers queries, and the streams that tell nodes of targets and commands.
//!
//! Absent here: applying a catalog (`engine`), and the API (`server`).

pub mod catalog_diffs;
pub mod catalogs;
pub mod code;
pub mod command_hub;
pub mod compile_failure;
pub mod compiles;
pub mod content;
pub mod environments;
pub mod modules;
pub mod query;
pub mod releases;
pub mod signals;
pub mod targets;

pub use catalog_diffs::CatalogDiffs;
pub use command_hub::{CommandHub, Subscription, Told};
pub use content::Contents;
pub use query::Queries;
pub use releases::{ReleaseOptions, Releases};
pub use targets::TargetBoard;
