//! Turns results into reported outcomes: without secrets, with their causes.

use bunraku_model::catalog::StateOrigin;
use serde_json::{Map, Value, json};

use super::Run;
use crate::plan::Step;
use crate::secrets::HIDDEN;
use crate::{Change, DisplayValue, ResourceOutcome, Status};

impl Run<'_> {
    /// Hides the properties that come from secret parameters, and every secret text
    /// elsewhere in the outcome.
    pub(super) fn without_secrets(
        &self,
        step: &Step,
        mut outcome: ResourceOutcome,
    ) -> ResourceOutcome {
        let secrets = &self.context.secrets;
        if secrets.is_empty() && step.sensitive.is_empty() && !step.secret_outputs {
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
        let ran_and_failed = outcome.status == Status::Failed && !outcome.outputs.is_empty();
        outcome.message = match outcome.message {
            // The message may quote printed output, and short secrets are not found in it.
            Some(_) if step.secret_outputs && ran_and_failed => {
                Some("it failed; its output is secret".to_owned())
            }
            message => message.map(|message| secrets.hide(message)),
        };
        for (name, output) in &mut outcome.outputs {
            let before = output.clone();
            if step.secret_outputs && !matches!(name.as_str(), "rc" | "pid") {
                *output = Value::from(HIDDEN);
            } else {
                secrets.hide_in(output);
            }
            outcome.secret_outputs |= *output != before;
        }
        for reason in &mut outcome.reasons {
            if let crate::Reason::Guard(text) = reason {
                *text = secrets.hide(std::mem::take(text));
            }
        }
        outcome
    }

    /// Returns the state to report. The name that a state acts on may be a secret command.
    pub(super) fn shown_state(&self, step: &Step) -> Option<Box<StateOrigin>> {
        let mut state = step.state.clone()?;
        if !step.sensitive.is_empty() && state.name != state.id {
            state.name = self.context.secrets.hide(state.name);
        }
        Some(state)
    }

    fn hide_in_change(&self, change: &mut Change) {
        let secrets = &self.context.secrets;
        for side in [&mut change.from, &mut change.to] {
            if let DisplayValue::Value(value) = side {
                secrets.hide_in(value);
            }
        }
        change.diff = change.diff.take().map(|diff| secrets.hide(diff));
    }

    /// Returns the outputs of a step that later steps may read.
    pub(super) fn registered(&self, outcome: &ResourceOutcome) -> Map<String, Value> {
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
