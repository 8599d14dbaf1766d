//! `--explain`: the position of each step, with the reason.

use std::io::{self, BufWriter, Write};

use bunraku_engine::{Mode, Plan};
use serde_json::json;

/// Prints the planned order with its reasons to stdout.
pub(crate) fn explain(plan: &Plan, json: bool) -> io::Result<()> {
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

fn free(mode: Mode, path_length: u32) -> String {
    match mode {
        Mode::Ansible => "waits for nothing: in file order".to_owned(),
        Mode::JustDoIt => "waits for nothing: at once".to_owned(),
        Mode::Genius if path_length > 1 => {
            format!("waits for nothing; {path_length} steps on its longest path, the longest first")
        }
        Mode::Genius => "waits for nothing, and nothing waits for it".to_owned(),
    }
}
