//! Queries over facts, resources, classes, reports and events: the language
//! and the index that answers it.
//!
//! [`Query::parse`] reads a text close to PuppetDB's PQL and checks it against
//! what there is to ask for. [`Index`] holds what the store says of each node,
//! shared where nodes are alike; [`Index::answer`] answers from it with sets of
//! nodes, so that a question over the whole fleet costs what is distinct in it
//! and not how many nodes there are.
//!
//! All of it is derived: an index that is built anew gives the same answers.
//! No I/O, no clock and no randomness in here. What a hostile query can cost
//! is bounded by [`Limits`], counted in steps.

mod answer;
mod index;
mod language;
mod scalar;

pub use answer::{Answer, AnswerError, Limits};
pub use index::{Index, IndexSize};
pub use language::{Query, QueryError};
