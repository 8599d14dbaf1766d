//! A plan for Graphviz.

use bunraku_wire::api::ordered_runs::RunPlan;

/// Returns the plan as a `digraph`, with nodes from left to right in run order.
pub fn dot(plan: &RunPlan) -> String {
    let mut out = String::from(
        "digraph plan {\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n",
    );
    for (at, step) in plan.steps.iter().enumerate() {
        let mut label = quoted(step.node.as_str());
        if step.pass > 1 || !step.tags.is_empty() {
            label.push_str(&format!(" (pass {})", step.pass));
        }
        for component in &step.components {
            label.push_str(&format!("\\l{}", quoted(&component.component)));
        }
        out.push_str(&format!("  s{at} [label=\"{label}\\l\"];\n"));
    }
    for (at, step) in plan.steps.iter().enumerate() {
        for wait in &step.waits_for {
            let mut needs: Vec<&str> = wait
                .reasons
                .iter()
                .filter_map(|reason| reason.needs.as_deref())
                .collect();
            needs.dedup();
            let label = quoted(&needs.join(", "));
            out.push_str(&format!(
                "  s{} -> s{at} [label=\"{label}\"];\n",
                wait.step.0
            ));
        }
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace(['\n', '\r'], " ")
}
