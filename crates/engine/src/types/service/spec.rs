//! The parameters of services.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "service",
    aliases: &[],
    summary: "A service: a systemd unit, an init script, or a process supervised through its PID file. A refresh restarts or reloads it if it is running.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`running` or `stopped`; not managed by default"),
        parameter(
            "enable",
            "true or false: whether it starts at boot; `mask`: prevent it from being started",
        ),
        parameter("masked", "true or false; systemd only"),
        parameter(
            "provider",
            "`systemd`, `init` or `supervised`; the machine's service manager by default",
        ),
        parameter(
            "reload",
            "true: a refresh reloads the service instead of restarting it",
        ),
        parameter(
            "hasstatus",
            "false: the init script has no `status`; search for `pattern` instead",
        ),
        parameter("hasrestart", "true: use the init script's own `restart`"),
        parameter(
            "pattern",
            "a text that its command line contains; the name by default",
        ),
        parameter("start", "the command that starts it"),
        parameter("stop", "the command that stops it"),
        parameter("restart", "the command that restarts it"),
        parameter(
            "status",
            "the command that succeeds while the service is running",
        ),
        parameter(
            "command",
            "supervised: the command to run in the foreground; passed to a shell",
        ),
        parameter("binary", "alias of `command`, as in Puppet"),
        parameter(
            "pidfile",
            "supervised: the PID file; `/run/NAME.pid` by default",
        ),
        parameter(
            "log",
            "supervised: the log file; `/var/log/NAME.log` by default",
        ),
        parameter(
            "startsecs",
            "supervised: seconds that it must run to count as started; 1 by default",
        ),
        parameter(
            "stop_timeout",
            "supervised: seconds between SIGTERM and SIGKILL; 10 by default",
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
