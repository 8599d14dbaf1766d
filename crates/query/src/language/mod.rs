//! The language: from text to a valid query.

mod ast;
mod check;
mod code;
mod entity;
mod error;
mod lexer;
mod names;
mod parser;
mod syntax;
mod visible;

pub(crate) use check::{
    Column, Field, Function, Matcher, Order, Query as CheckedQuery, Step, Test,
};
pub(crate) use entity::Entity;
pub use error::QueryError;
pub(crate) use names::near;
pub use visible::VisibleFacts;

/// A parsed and checked query.
#[derive(Clone, Debug)]
pub struct Query(pub(crate) CheckedQuery);

impl Query {
    /// Reads a query.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        let syntax = parser::parse(text)?;
        check::check(syntax).map(Self)
    }
}
