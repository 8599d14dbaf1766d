//! The parameters of cron entries.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "cron",
    aliases: &[],
    summary: "A job in a user's crontab. Other jobs are not changed.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter("command", "the command to run; required unless absent"),
        parameter("user", "the owner of the crontab; `root` by default"),
        parameter(
            "minute",
            "0 to 59, names, ranges, steps or a list; `*` by default",
        ),
        parameter("hour", "0 to 23"),
        parameter("monthday", "1 to 31"),
        parameter("month", "1 to 12, or names"),
        parameter("weekday", "0 to 7 (Sunday is 0 and 7), or names"),
        parameter(
            "special",
            "`reboot`, `hourly`, `daily`, `weekly`, `monthly`, `yearly`, … instead of times",
        ),
        parameter(
            "environment",
            "a list of `NAME=value` for this job and the jobs below it",
        ),
        parameter(
            "identifier",
            "the name in the crontab; the title by default",
        ),
        parameter("target", "alias of `user`, as in Puppet"),
    ],
    states: &[
        StateFunction {
            function: "cron.present",
            implies: &[("ensure", "present")],
            arguments: &[
                argument("daymonth", "monthday"),
                argument("dayweek", "weekday"),
            ],
        },
        StateFunction {
            function: "cron.absent",
            implies: &[("ensure", "absent")],
            arguments: &[
                argument("daymonth", "monthday"),
                argument("dayweek", "weekday"),
            ],
        },
    ],
    example: r#"[{"type": "Cron", "title": "nightly backup", "parameters": {
  "command": "/usr/local/bin/backup --all", "user": "root", "hour": 3, "minute": 30}}]"#,
};
