//! Runs as people follow them.

mod lines;
mod live;
mod summary;
mod timeline;

pub(crate) use lines::line;
pub(crate) use live::Live;
pub(crate) use summary::{list_table, short, summary};
pub(crate) use timeline::timeline_text;
