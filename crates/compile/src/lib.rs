//! The services from code to the catalog that each node applies: environments,
//! compiles, modules, catalogs, diffs, releases and targets. Also the index
//! that answers queries, and the streams that notify nodes of targets and
//! commands.
//!
//! Absent here: applying a catalog (`engine`), and the API (`server`).

pub mod agent_feed;
pub mod catalog_diffs;
pub mod catalogs;
pub mod code;
pub mod code_questions;
pub mod command_hub;
pub mod compile_failure;
pub mod compiles;
pub mod content;
pub mod environments;
pub mod modules;
pub mod query;
pub mod releases;
pub mod repositories;
pub mod signals;
pub mod state_world;
pub mod targets;

pub use agent_feed::AgentFeed;
pub use catalog_diffs::CatalogDiffs;
pub use command_hub::{CommandHub, Subscription, SubscriptionItem};
pub use content::Contents;
pub use query::Queries;
pub use releases::{ReleaseOptions, Releases};
pub use repositories::Repositories;
pub use targets::TargetBoard;
