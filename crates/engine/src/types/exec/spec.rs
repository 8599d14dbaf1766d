//! The names and parameters of `exec`.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "exec",
    aliases: &["cmd"],
    summary: "Runs a command, unless its guards say that it is not needed.",
    name_parameter: "command",
    parameters: &[
        parameter(
            "command",
            "text for a shell, or a list of words without one; the title by default",
        ),
        parameter(
            "creates",
            "paths that the command makes: it runs only while one is missing (Puppet's lists: while none is there)",
        ),
        parameter("cwd", "the directory to run in; it must exist"),
        parameter("environment", "a list of `NAME=value`, or a map"),
        parameter("group", "the group to run as"),
        parameter(
            "logoutput",
            "accepted for Puppet's sake: output is always told as it comes",
        ),
        parameter("onlyif", "commands that must all succeed for it to run"),
        parameter(
            "output_limit",
            "how many bytes of each stream are kept; 1 MiB by default",
        ),
        parameter("path", "the search path, as a list or joined with colons"),
        parameter("prepend_path", "a directory to search before all others"),
        parameter(
            "provider",
            "`posix` or `shell`, as in Puppet; both may use shell words",
        ),
        parameter("refresh", "another command to run on a refresh"),
        parameter("refreshonly", "true: run on a refresh and not otherwise"),
        parameter("returns", "the exit codes that mean success; 0 by default"),
        parameter("shell", "the shell that runs the text; /bin/sh by default"),
        parameter(
            "stateful",
            "true: the last line of output says whether something changed, as in Salt",
        ),
        parameter("stdin", "text for the command to read"),
        parameter(
            "timeout",
            "seconds until the whole process group is ended; 300 by default, for states none; 0 is none",
        ),
        parameter("tries", "how often to try until it succeeds; 1 by default"),
        parameter("try_sleep", "seconds between tries; 0 by default"),
        parameter("umask", "the umask, in octal"),
        parameter(
            "unless",
            "commands; when one succeeds (for states: when all do) it does not run",
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
