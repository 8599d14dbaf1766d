//! Everything in Bunraku that reads input from outside, one function for each kind.
//!
//! A target must return for every input: no panic, no overflow of the stack, no endless loop.
//! `scripts/fuzz` runs the targets under libFuzzer, and `tests/main.rs` runs each over its corpus
//! and over changed copies of it. Inputs that are too large for a server are cut off.

mod front_ends;
mod messages;

pub use front_ends::{pillar, puppet_evaluator, puppet_parser, query, site_file, states, yaml};
pub use messages::{catalog, gossip, http_body, module_package};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// All targets. `fuzz/corpus` has a directory for each.
pub const TARGETS: &[FuzzTarget] = &[
    target("yaml", yaml),
    target("states", states),
    target("pillar", pillar),
    target("query", query),
    target("puppet_parser", puppet_parser),
    target("puppet_evaluator", puppet_evaluator),
    target("catalog", catalog),
    target("module_package", module_package),
    target("http_body", http_body),
    target("gossip", gossip),
    target("site_file", site_file),
];

const fn target(name: &'static str, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, run }
}

/// Returns the input as text, or nothing if it is not UTF-8: everything that reads text refuses
/// such bytes before.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}
