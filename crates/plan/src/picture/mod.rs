//! Pictures of plans and runs, as text in a graphics format.

mod dot;
mod layout;
mod svg;
mod text;

pub use dot::dot;
pub use svg::plan_svg;
pub(crate) use text::{escape, shorten};
