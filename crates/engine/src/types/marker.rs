//! Types that only appear in the graph: `anchor`, and Puppet's `schedule` and
//! `filebucket`, which a catalog may contain and which change nothing here.

use crate::spec::parameter;
use crate::{
    ApplyResult, Change, Declaration, Observation, ParameterSpec, Provider, ReadAccess, Refusal,
    ResourceType, StepError, TypeSpec,
};

pub(crate) struct Marker(pub(crate) &'static TypeSpec);

const fn marker(
    name: &'static str,
    summary: &'static str,
    parameters: &'static [ParameterSpec],
    example: &'static str,
) -> TypeSpec {
    TypeSpec {
        name,
        aliases: &[],
        summary,
        name_parameter: "name",
        parameters,
        states: &[],
        example,
    }
}

pub(crate) static ANCHOR: TypeSpec = marker(
    "anchor",
    "A marker for ordering.",
    &[],
    r#"[{"type": "Anchor", "title": "web::begin"}]"#,
);

pub(crate) static SCHEDULE: TypeSpec = marker(
    "schedule",
    "Accepted in Puppet catalogs; no effect. Windows are a setting of the agent.",
    &[
        parameter("period", "accepted; no effect"),
        parameter("periodmatch", "accepted; no effect"),
        parameter("range", "accepted; no effect"),
        parameter("repeat", "accepted; no effect"),
        parameter("weekday", "accepted; no effect"),
    ],
    r#"[{"type": "Schedule", "title": "nightly", "parameters": {"range": "2 - 4"}}]"#,
);

pub(crate) static FILEBUCKET: TypeSpec = marker(
    "filebucket",
    "Accepted in Puppet catalogs. Replaced files are always kept in the engine's own backups.",
    &[
        parameter("path", "accepted; no effect"),
        parameter("port", "accepted; no effect"),
        parameter("server", "accepted; no effect"),
    ],
    r#"[{"type": "Filebucket", "title": "main", "parameters": {"path": false}}]"#,
);

impl ResourceType for Marker {
    type Desired = ();
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        self.0
    }

    fn desire(&self, _declaration: &Declaration) -> Result<(), Refusal> {
        Ok(())
    }

    fn changes(&self, (): &(), (): &()) -> Vec<Change> {
        Vec::new()
    }
}

impl Provider for Marker {
    fn observe(&self, (): &(), _sight: &ReadAccess<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, _: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        Ok(ApplyResult::default())
    }
}
