//! The parameters of users.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "user",
    aliases: &[],
    summary: "A user's account.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter(
            "uid",
            "the number; the system chooses one when it is not given",
        ),
        parameter("gid", "the primary group, by name or number"),
        parameter("groups", "the other groups, by name"),
        parameter(
            "membership",
            "`minimum` (the default): at least `groups`; `inclusive`: no others",
        ),
        parameter("home", "the path of the home directory"),
        parameter(
            "managehome",
            "true: the home directory is made, moved with `home`, and removed with the user",
        ),
        parameter("shell", "the login shell"),
        parameter("comment", "the full name, or whatever describes the user"),
        parameter("password", "the password's hash, never shown"),
        parameter(
            "expiry",
            "the last day, as 2030-12-31 or in days since 1970; `absent` for none",
        ),
        parameter("system", "true: a number from the range for the system"),
        parameter("allowdupe", "true: the number may be taken already"),
        parameter(
            "forcelocal",
            "accepted for Puppet's sake: users are always local",
        ),
    ],
    states: &[
        StateFunction {
            function: "user.present",
            implies: &[("ensure", "present"), ("managehome", "true")],
            arguments: &[
                argument("fullname", "comment"),
                argument("createhome", "managehome"),
                argument("expire", "expiry"),
            ],
        },
        StateFunction {
            function: "user.absent",
            implies: &[("ensure", "absent")],
            arguments: &[argument("purge", "managehome")],
        },
    ],
    example: r#"[
  {"type": "Group", "title": "deploy", "parameters": {"gid": 1500}},
  {"type": "User", "title": "deploy", "parameters": {
    "uid": 1500, "gid": "deploy", "shell": "/bin/sh", "home": "/srv/deploy"}}]"#,
};
