//! The names and parameters of `exec`.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "exec",
    aliases: &["cmd"],
    summary: "Runs a command, unless its guards prevent it.",
    name_parameter: "command",
    parameters: &[
        parameter(
            "command",
            "text for a shell, or a list of words without a shell; the title by default",
        ),
        parameter(
            "creates",
            "paths that the command creates: it runs only if one of them is missing (lists in Puppet: if all are missing)",
        ),
        parameter("cwd", "the directory to run in; it must exist"),
        parameter("environment", "a list of `NAME=value`, or a map"),
        parameter("group", "the group to run as"),
        parameter(
            "logoutput",
            "accepted for compatibility with Puppet: output is always reported as it arrives",
        ),
        parameter("onlyif", "commands; it runs only if all succeed"),
        parameter(
            "output_limit",
            "number of bytes to keep of each output stream; 1 MiB by default",
        ),
        parameter("path", "the search path, as a list or separated by colons"),
        parameter("prepend_path", "a directory to search first"),
        parameter(
            "provider",
            "`posix` or `shell`, as in Puppet; both can use shell syntax",
        ),
        parameter("refresh", "a different command to run on a refresh"),
        parameter("refreshonly", "true: run only on a refresh"),
        parameter("returns", "the exit codes that mean success; 0 by default"),
        parameter("shell", "the shell that runs the text; /bin/sh by default"),
        parameter(
            "stateful",
            "true: the last line of output tells whether something changed, as in Salt",
        ),
        parameter("stdin", "text for the command's standard input"),
        parameter(
            "timeout",
            "seconds until the process group is killed; 300 by default, no limit for states; 0: no limit",
        ),
        parameter("tries", "maximum number of tries; 1 by default"),
        parameter("try_sleep", "seconds between tries; 0 by default"),
        parameter("umask", "the umask, in octal"),
        parameter(
            "unless",
            "commands; it does not run if one succeeds (for states: if all succeed)",
        ),
        parameter("user", "the user to run as"),
    ],
    states: &[
        StateFunction {
            function: "cmd.run",
            implies: &[],
            arguments: ARGUMENTS,
        },
        StateFunction {
            function: "cmd.wait",
            implies: &[("refreshonly", "true")],
            arguments: ARGUMENTS,
        },
    ],
    example: r#"[
  {"type": "Exec", "title": "make a key", "parameters": {
    "command": "head -c 32 /dev/urandom | base64 > @ROOT@/key",
    "path": "/usr/bin:/bin", "creates": "@ROOT@/key", "umask": "077", "timeout": 10}}
]"#,
};

const ARGUMENTS: &[Argument] = &[
    argument("name", "command"),
    argument("cmd", "command"),
    argument("runas", "user"),
    argument("env", "environment"),
    argument("success_retcodes", "returns"),
];
