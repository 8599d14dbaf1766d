//! `test`: has a declared outcome, to try out requisites. Salt's `test` states.

use serde_json::json;

use crate::spec::{function, parameter};
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    ResourceType, StepError, TypeSpec,
};

pub(crate) struct Test;

static SPEC: TypeSpec = TypeSpec {
    name: "test",
    aliases: &[],
    summary: "Changes nothing on the machine. It succeeds or fails, with or without changes, as configured.",
    name_parameter: "name",
    parameters: &[
        parameter("changes", "true: it reports a change; false by default"),
        parameter("result", "false: it fails; true by default"),
        parameter("comment", "the message"),
        parameter(
            "fails_in_noop",
            "false: a noop run does not report that it would fail; true by default",
        ),
    ],
    states: &[
        function("test.nop", &[], &[]),
        function("test.succeed_without_changes", &[], &[]),
        function("test.succeed_with_changes", &[("changes", "true")], &[]),
        function("test.fail_without_changes", &[("result", "false")], &[]),
        function(
            "test.fail_with_changes",
            &[("changes", "true"), ("result", "false")],
            &[],
        ),
        function("test.configurable_test_state", &[("changes", "true")], &[]),
    ],
    example: r#"[{"type": "Test", "title": "always new", "parameters": {"changes": true}}]"#,
};

pub(crate) struct DesiredTest {
    changes: bool,
    result: bool,
    comment: Option<String>,
    fails_in_noop: bool,
}

impl ResourceType for Test {
    type Desired = DesiredTest;
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredTest, Refusal> {
        Ok(DesiredTest {
            changes: declaration.boolean("changes")?.unwrap_or(false),
            result: declaration.boolean("result")?.unwrap_or(true),
            comment: declaration.text("comment")?,
            fails_in_noop: declaration.boolean("fails_in_noop")?.unwrap_or(true),
        })
    }

    fn changes(&self, desired: &DesiredTest, (): &()) -> Vec<Change> {
        if desired.changes {
            vec![Change::new(
                "testing",
                json!("Unchanged"),
                json!("Something pretended to change"),
            )]
        } else {
            Vec::new()
        }
    }

    fn verdict(&self, desired: &DesiredTest, (): &(), noop: bool) -> Result<(), StepError> {
        if desired.result || desired.changes || noop && !desired.fails_in_noop {
            Ok(())
        } else {
            Err(failure(desired))
        }
    }

    fn refresh_change(&self, _desired: &DesiredTest, (): &()) -> Option<Change> {
        Some(Change::new(
            "watch",
            DisplayValue::Absent,
            json!("Requisites with changes"),
        ))
    }

    fn unchanged_message(&self, desired: &DesiredTest, (): &()) -> Option<String> {
        desired.comment.clone()
    }

    fn undoes_drift(&self, _desired: &DesiredTest, (): &()) -> bool {
        false
    }
}

impl Provider for Test {
    fn observe(&self, _desired: &DesiredTest, _sight: &ReadAccess<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let desired = step.desired;
        if !desired.result {
            return Err(failure(desired).with_changes_made());
        }
        Ok(ApplyResult {
            message: desired.comment.clone(),
            ..ApplyResult::default()
        })
    }
}

fn failure(desired: &DesiredTest) -> StepError {
    StepError::new(desired.comment.as_deref().unwrap_or("failed as configured"))
}
