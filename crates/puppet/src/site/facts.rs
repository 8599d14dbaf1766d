//! The known data of the node that a component runs on.
//!
//! `$trusted`, `$clientcert` and `$environment` follow from the site itself. Facts come from the
//! [`World`](crate::World). Without them, facts are undefined: only values depend on them, never
//! order.

use std::collections::{BTreeSet, HashMap};

use super::{Instance, Part};
use crate::diagnostic::Diagnostic;
use crate::evaluate::{EvalResult, Evaluator};
use crate::source::Span;
use crate::value::{Hash, Value};

impl Evaluator<'_> {
    /// Sets the facts of a component's node as variables of the top scope. Returns true if there
    /// are any.
    pub(super) fn enter_node(&mut self, part: &Part) -> EvalResult<bool> {
        let [(node, _)] = part.nodes.as_slice() else {
            self.scopes.set_facts(HashMap::new());
            return Ok(false);
        };
        let facts = self.world.facts(node);
        let found = facts.is_some();
        let facts = Value::from_json(&facts.unwrap_or_default().into());
        let facts = self.shallow(facts, part.span)?;
        let mut variables = HashMap::new();
        if let Value::Hash(table) = &facts {
            for (name, value) in &table.entries {
                variables.insert(name.to_string(), value.clone());
            }
        }
        let trusted = self.trusted(node, variables.get("trusted"), part.span)?;
        variables.insert("trusted".to_owned(), trusted);
        variables.insert("clientcert".to_owned(), Value::text(node));
        if found {
            variables.insert("facts".to_owned(), facts);
        }
        self.scopes.set_facts(variables);
        Ok(found)
    }

    /// Returns the data of the certificate, as far as it is known.
    fn trusted(&mut self, node: &str, known: Option<&Value>, span: Span) -> EvalResult {
        let mut trusted = match known {
            Some(Value::Hash(table)) => table.entries.clone(),
            _ => Hash::new(),
        };
        trusted.insert(Value::text("certname"), Value::text(node));
        self.hash(trusted, span)
    }

    /// Adds one note for all nodes without facts.
    pub(super) fn note_unknown_facts(&mut self, instances: &[Instance]) {
        const MOST: usize = 5;
        let parts = || instances.iter().flat_map(|instance| &instance.parts);
        let nodes: BTreeSet<&str> = parts()
            .flat_map(|part| &part.nodes)
            .map(|(node, _)| node.as_str())
            .filter(|node| self.world.facts(node).is_none())
            .collect();
        let Some(span) = parts().map(|part| part.span).next() else {
            return;
        };
        if nodes.is_empty() || !self.missed_facts {
            return;
        }
        let shown: Vec<&str> = nodes.iter().take(MOST).copied().collect();
        let more = match nodes.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "no facts for {}{more}: values that depend on them are undefined",
            shown.join(", ")
        );
        self.note(Diagnostic::new(message, span).hint("this does not affect the order"));
    }
}
