//! Puppet's language: lexer, parser, and an evaluator for site orchestration.
//!
//! The parser accepts the whole language of Puppet 4 to 8, and the parts that Puppet 7 removed:
//! `application`, `site`, `produces`, `consumes`. The evaluator evaluates expressions, functions,
//! and applications; it does not compile catalogs of nodes.
//!
//! Absent: files, clocks, randomness. Sources come from a [`World`]. No input makes the crate
//! panic, run forever or overflow a stack: depth, steps and sizes are bounded ([`Limits`]).

pub mod ast;
mod diagnostic;
mod evaluate;
mod lexer;
mod limits;
mod parser;
mod pattern;
mod reference;
mod site;
mod source;
mod value;
mod world;

pub use diagnostic::{Diagnostic, PuppetError};
pub use limits::Limits;
pub use reference::Reference;
pub use site::{Application, Capability, Component, Located, Site, evaluate_site};
pub use source::{FileId, Sources, Span};
pub use value::types::Type;
pub use value::{Hash, Value};
pub use world::{FunctionCall, NoModules, World, WorldError};

/// Parses one file that is in `sources`.
pub fn parse(
    sources: &Sources,
    file: FileId,
    limits: &Limits,
) -> Result<Vec<ast::Expression>, Diagnostic> {
    let tokens = lexer::tokens(sources.text(file), file, limits)?;
    parser::parse(&tokens, Span::new(file, 0, 0), limits)
}
