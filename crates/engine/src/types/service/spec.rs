//! The parameters of services.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "service",
    aliases: &[],
    summary: "A service: a unit of systemd, an init script, or a process that is kept by its pid file. A refresh restarts or reloads it if it runs.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`running` or `stopped`; not managed unless given"),
        parameter(
            "enable",
            "true or false: whether it starts at boot; `mask` so that nothing starts it",
        ),
        parameter("masked", "true or false, with systemd"),
        parameter(
            "provider",
            "`systemd`, `init` or `supervised`; what the machine has by default",
        ),
        parameter("reload", "true: a refresh reloads instead of restarting"),
        parameter(
            "hasstatus",
            "false: the init script has no `status`; look for `pattern` instead",
        ),
        parameter(
            "hasrestart",
            "true: the init script's own `restart` is used",
        ),
        parameter(
            "pattern",
            "what its command line contains; the name by default",
        ),
        parameter("start", "the command that starts it"),
        parameter("stop", "the command that stops it"),
        parameter("restart", "the command that restarts it"),
        parameter("status", "the command that succeeds while it runs"),
        parameter(
            "command",
            "supervised: what to run, in the foreground; given to a shell",
        ),
        parameter("binary", "another word for `command`, as in Puppet"),
        parameter(
            "pidfile",
            "supervised: where its number is kept; `/run/NAME.pid` by default",
        ),
        parameter(
            "log",
            "supervised: where its output goes; `/var/log/NAME.log` by default",
        ),
        parameter(
            "startsecs",
            "supervised: seconds that it must live to have started; 1 by default",
        ),
        parameter(
            "stop_timeout",
            "supervised: seconds between asking and killing; 10 by default",
        ),
    ],
    states: &[
        StateFunction {
            function: "service.running",
            implies: &[("ensure", "running")],
            arguments: &[argument("sig", "pattern")],
        },
        StateFunction {
            function: "service.dead",
            implies: &[("ensure", "stopped")],
            arguments: &[argument("sig", "pattern")],
        },
        StateFunction {
            function: "service.enabled",
            implies: &[("enable", "true")],
            arguments: &[],
        },
        StateFunction {
            function: "service.disabled",
            implies: &[("enable", "false")],
            arguments: &[],
        },
        StateFunction {
            function: "service.masked",
            implies: &[("masked", "true")],
            arguments: &[],
        },
        StateFunction {
            function: "service.unmasked",
            implies: &[("masked", "false")],
            arguments: &[],
        },
    ],
    example: r#"[{"type": "Service", "title": "bunraku-example", "parameters": {
  "ensure": "stopped", "provider": "supervised", "command": "exec sleep 1000",
  "pidfile": "@ROOT@/example.pid", "log": "@ROOT@/example.log"}}]"#,
};
