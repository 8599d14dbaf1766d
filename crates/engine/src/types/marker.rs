//! Types that only appear in the graph: `anchor`, and Puppet's `schedule` and
//! `filebucket`, which a catalog may contain and which change nothing themselves.

use crate::resource_schedule::ResourceSchedule;
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
    "When resources that name it with `schedule` are applied. At other times they are skipped.",
    &[
        parameter(
            "period",
            "`hourly`, `daily`, `weekly`, `monthly` or `never`",
        ),
        parameter(
            "periodmatch",
            "`distance` (the default): a period after the last time; `number`: once in each hour, day, week or month of the calendar",
        ),
        parameter(
            "range",
            "hours of the day, such as `22:30 - 4`; a list is possible",
        ),
        parameter("repeat", "how often in one period; 1 by default"),
        parameter(
            "weekday",
            "days of the week, such as `Mon`; a list is possible",
        ),
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

    fn desire(&self, declaration: &Declaration) -> Result<(), Refusal> {
        if self.0.name == SCHEDULE.name {
            ResourceSchedule::read("", declaration)?;
        }
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
