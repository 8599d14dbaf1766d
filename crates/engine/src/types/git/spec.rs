//! The parameters of checkouts.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

const ARGUMENTS: &[Argument] = &[
    argument("name", "source"),
    argument("target", "path"),
    argument("rev", "revision"),
    argument("force_reset", "force"),
];

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "git",
    aliases: &["vcsrepo"],
    summary: "A checkout of a git repository at a revision, using the `git` program.",
    name_parameter: "path",
    parameters: &[
        parameter(
            "path",
            "the directory of the checkout; the title by default",
        ),
        parameter(
            "ensure",
            "`present` (the default): at the revision, as known locally; `latest`: at the source's current revision; `cloned`: exists; `bare`; `absent`",
        ),
        parameter(
            "source",
            "the URL of the repository; required unless absent",
        ),
        parameter(
            "revision",
            "a branch, a tag or a commit; the source's default branch by default",
        ),
        parameter(
            "force",
            "true: discard local changes and anything else at the path",
        ),
        parameter("submodules", "true: include submodules"),
        parameter("depth", "number of commits to fetch"),
        parameter("remote", "the name of the remote; `origin` by default"),
        parameter("user", "the owner of the checkout; git runs as this user"),
        parameter("identity", "the SSH key to use"),
        parameter(
            "provider",
            "`git`, for compatibility with Puppet's `vcsrepo`",
        ),
        parameter("timeout", "seconds for each command; 3600 by default"),
    ],
    states: &[
        StateFunction {
            function: "git.latest",
            implies: &[("ensure", "latest")],
            arguments: ARGUMENTS,
        },
        StateFunction {
            function: "git.detached",
            implies: &[("ensure", "present")],
            arguments: ARGUMENTS,
        },
        StateFunction {
            function: "git.cloned",
            implies: &[("ensure", "cloned")],
            arguments: &[
                argument("name", "source"),
                argument("target", "path"),
                argument("branch", "revision"),
            ],
        },
    ],
    example: r#"[
  {"type": "Exec", "title": "make a repository", "parameters": {
    "command": "git init -q -b main @ROOT@/origin && git -C @ROOT@/origin -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m first",
    "provider": "shell", "path": "/usr/local/bin:/usr/bin:/bin", "creates": "@ROOT@/origin/.git/refs/heads/main"}},
  {"type": "Git", "title": "@ROOT@/checkout", "parameters": {
    "source": "@ROOT@/origin", "revision": "main", "require": "Exec[make a repository]"}}]"#,
};
