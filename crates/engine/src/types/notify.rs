//! `notify`: reports a message in every run.

use serde_json::json;

use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    ResourceType, StateFunction, StepError, TypeSpec,
};

pub(crate) struct Notify;

static SPEC: TypeSpec = TypeSpec {
    name: "notify",
    aliases: &[],
    summary: "Prints a message in every run. This counts as a change, as in Puppet.",
    name_parameter: "name",
    parameters: &[
        parameter("message", "the message; the title by default"),
        parameter(
            "withpath",
            "accepted for compatibility with Puppet; no effect",
        ),
    ],
    states: &[StateFunction {
        function: "test.show_notification",
        implies: &[],
        arguments: &[argument("text", "message")],
    }],
    example: r#"[{"type": "Notify", "title": "hello", "parameters": {"message": "the web server is configured"}}]"#,
};

pub(crate) struct Message {
    text: String,
    /// True if the message counts as a change: for a Puppet `notify`, but not for a
    /// state's notification.
    counts: bool,
}

impl ResourceType for Notify {
    type Desired = Message;
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Message, Refusal> {
        declaration.boolean("withpath")?;
        let text = match declaration.value("message") {
            Some(value) if value.is_object() || value.is_array() => value.to_string(),
            _ => declaration
                .text("message")?
                .map_or_else(|| declaration.name(), Ok)?,
        };
        Ok(Message {
            text,
            counts: !declaration.is_state(),
        })
    }

    fn changes(&self, desired: &Message, (): &()) -> Vec<Change> {
        if desired.counts {
            vec![Change::new(
                "message",
                DisplayValue::Absent,
                json!(desired.text),
            )]
        } else {
            Vec::new()
        }
    }

    fn undoes_drift(&self, _desired: &Message, (): &()) -> bool {
        false
    }
}

impl Provider for Notify {
    fn observe(&self, _desired: &Message, _sight: &ReadAccess<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let desired = step.desired;
        Ok(ApplyResult {
            message: Some(desired.text.clone()),
            ..ApplyResult::default()
        })
    }
}
