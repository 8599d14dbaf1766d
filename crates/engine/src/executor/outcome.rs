//! From what happened to what is told: without secrets, with its cause.

use serde_json::{Map, Value, json};

use super::Run;
use crate::plan::Step;
use crate::{Change, Outcome, Shown};

impl Run<'_> {
    /// Hides the properties that come from secret parameters, and every
    /// secret text wherever else it turns up.
    pub(super) fn without_secrets(&self, step: &Step, mut outcome: Outcome) -> Outcome {
        let secrets = self.context.secrets;
        if secrets.is_empty() && step.sensitive.is_empty() {
            return outcome;
        }
        outcome.changes = (outcome.changes.into_iter())
            .map(|change| {
                if step.sensitive.contains(&change.property) {
                    change.hidden()
                } else {
                    change
                }
            })
            .collect();
        for change in &mut outcome.changes {
            self.hide_in_change(change);
        }
        outcome.message = outcome.message.map(|message| secrets.hide(message));
        for output in outcome.outputs.values_mut() {
            secrets.hide_in(output);
        }
        for reason in &mut outcome.reasons {
            if let crate::Reason::Guard(text) = reason {
                *text = secrets.hide(std::mem::take(text));
            }
        }
        outcome
    }

    fn hide_in_change(&self, change: &mut Change) {
        let secrets = self.context.secrets;
        for side in [&mut change.from, &mut change.to] {
            if let Shown::Value(value) = side {
                secrets.hide_in(value);
            }
        }
        change.diff = change.diff.take().map(|diff| secrets.hide(diff));
    }

    /// What later steps may read of a step.
    pub(super) fn registered(&self, outcome: &Outcome) -> Map<String, Value> {
        let mut outputs = outcome.outputs.clone();
        let changes: Map<String, Value> = (outcome.changes.iter())
            .map(|change| {
                (
                    change.property.clone(),
                    json!({"old": change.from, "new": change.to}),
                )
            })
            .collect();
        outputs.entry("changes").or_insert(Value::Object(changes));
        outputs
            .entry("changed")
            .or_insert(Value::Bool(outcome.is_change()));
        outputs.entry("result").or_insert(json!(outcome.result()));
        outputs.entry("comment").or_insert(json!(outcome.message));
        outputs
    }
}
