//! `--explain`: the position of each step, with the reason.

use std::io::{self, BufWriter, Write};

use bunraku_engine::{CatalogPlan, OrderingMode};
use serde_json::json;

/// Prints the planned order with its reasons to stdout.
pub(crate) fn explain(plan: &CatalogPlan, json: bool) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for (index, one) in plan.explain().enumerate() {
        if json {
            let value = json!({
                "position": index + 1, "resource": one.reference, "file": one.place.file, "line": one.place.line,
                "reasons": one.reasons, "path_length": one.path_length,
            });
            writeln!(out, "{value}")?;
            continue;
        }
        writeln!(out, "{}  {}  ({})", index + 1, one.reference, one.place)?;
        for reason in &one.reasons {
            writeln!(out, "    {reason}")?;
        }
        if one.reasons.is_empty() {
            writeln!(out, "    {}", free(plan.mode(), one.path_length))?;
        }
    }
    out.flush()
}

fn free(mode: OrderingMode, path_length: u32) -> String {
    match mode {
        OrderingMode::Ansible => "no dependencies: in file order".to_owned(),
        OrderingMode::JustDoIt => "no dependencies: starts immediately".to_owned(),
        OrderingMode::Genius if path_length > 1 => {
            format!("no dependencies: starts a chain of {path_length} steps (longest chain first)")
        }
        OrderingMode::Genius => "no dependencies, and nothing depends on it".to_owned(),
    }
}
