//! The parameters of users.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "user",
    aliases: &[],
    summary: "A user account.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter("uid", "the numeric id; chosen by the system by default"),
        parameter("gid", "the primary group, by name or number"),
        parameter("groups", "the other groups, by name"),
        parameter(
            "membership",
            "`minimum` (the default): at least `groups`; `inclusive`: exactly `groups`",
        ),
        parameter("home", "the path of the home directory"),
        parameter(
            "managehome",
            "true: create the home directory, move it with `home`, and remove it with the user",
        ),
        parameter("shell", "the login shell"),
        parameter("comment", "the full name or a description of the user"),
        parameter("password", "the password hash; never shown"),
        parameter(
            "expiry",
            "the expiry date, as 2030-12-31 or in days since 1970; `absent`: never",
        ),
        parameter("system", "true: use an id from the system range"),
        parameter("allowdupe", "true: allow an id that is already in use"),
        parameter(
            "forcelocal",
            "accepted for compatibility with Puppet: users are always local",
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
