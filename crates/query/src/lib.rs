//! Queries over facts, resources, classes, reports and events: the language and
//! the index that answers it.
//!
//! [`Query::parse`] reads a text close to PuppetDB's PQL and checks it against
//! the known entities and fields. [`Index`] holds the store's data about each
//! node, shared where nodes are alike. [`Index::answer`] answers from it with
//! sets of nodes. So the cost of a question over the whole fleet depends on the
//! distinct data and not on the number of nodes.
//!
//! All of it is derived: a rebuilt index gives the same answers. There is no
//! I/O, no clock and no randomness here. [`Limits`] bounds the cost of a
//! hostile query, counted in steps.

mod answer;
mod index;
mod language;
mod scalar;

pub use answer::{AnswerError, Limits, QueryAnswer};
pub use index::{ExportFilter, ExportSum, ExportedResource, Index, IndexSize};
pub use language::{Query, QueryError, VisibleFacts};
