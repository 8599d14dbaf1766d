//! What a release leaves nodes on, grouped, and what nodes get that join later.

use std::collections::BTreeMap;

use bunraku_model::{CodeId, EnvironmentName, NodeName};
use bunraku_wire::api::{ReleaseDetail, ReleaseTo, RunMode};

use crate::output;

/// Returns what the nodes of a release are left on, and what later nodes get.
pub(crate) fn left_on(detail: &ReleaseDetail) -> String {
    let mut text = String::new();
    for group in detail.groups() {
        let code = group.code_id.as_ref().map_or("-", |code| code.short());
        text += &format!(
            "  {} on {code}  {}  {}\n",
            output::count(group.nodes.len(), "node"),
            mode(group.mode),
            names(&group.nodes)
        );
    }
    text + &without_catalog(detail) + &later_nodes(detail)
}

/// Returns the nodes without a catalog, grouped by reason.
pub(crate) fn without_catalog(detail: &ReleaseDetail) -> String {
    let mut reasons: BTreeMap<&str, Vec<NodeName>> = BTreeMap::new();
    for without in &detail.without_catalog {
        let nodes = reasons.entry(&without.reason).or_default();
        nodes.push(without.node.clone());
    }
    let lines = reasons.into_iter().map(|(reason, nodes)| {
        format!(
            "  {} without a catalog ({reason})  {}\n",
            output::count(nodes.len(), "node"),
            names(&nodes)
        )
    });
    lines.collect()
}

/// Says which code is not released automatically, if any.
pub(crate) fn rolled_back_note(environment: &EnvironmentName, codes: &[CodeId]) -> Option<String> {
    if codes.is_empty() {
        return None;
    }
    let codes: Vec<&str> = codes.iter().map(CodeId::short).collect();
    Some(format!(
        "{} was rolled back and is not released automatically.\n\nhint: release it again with `bunraku release create {environment}`",
        codes.join(", ")
    ))
}

/// Returns what nodes get that join later.
pub(crate) fn later_nodes(detail: &ReleaseDetail) -> String {
    let mut text = String::new();
    for rule in &detail.join_rules {
        let covers = match &rule.covers {
            ReleaseTo::Everything if detail.join_rules.len() > 1 => "other new nodes".to_owned(),
            ReleaseTo::Everything => "new nodes".to_owned(),
            ReleaseTo::Percentage { percent } => format!("{percent} % of new nodes"),
            ReleaseTo::Query { query } => format!("new nodes that match `{query}`"),
            ReleaseTo::Nodes { nodes } => names(nodes),
        };
        let code = rule.code_id.short();
        text += &format!("  {covers} get {code}, as in release {}\n", rule.release);
    }
    if !detail.rolled_back.is_empty() {
        let codes: Vec<&str> = detail.rolled_back.iter().map(CodeId::short).collect();
        text += &format!(
            "  {} stays out until someone releases it again\n",
            codes.join(", ")
        );
    }
    text
}

/// Returns a few names.
fn names(nodes: &[NodeName]) -> String {
    const MOST: usize = 5;
    let mut shown: Vec<String> = nodes.iter().take(MOST).map(ToString::to_string).collect();
    if nodes.len() > MOST {
        shown.push(format!("and {} more", nodes.len() - MOST));
    }
    shown.join(", ")
}

pub(crate) fn mode(mode: RunMode) -> &'static str {
    match mode {
        RunMode::Enforce => "enforce",
        RunMode::Noop => "noop only",
    }
}
