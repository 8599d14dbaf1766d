//! The parameters of working copies.

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
    summary: "A checkout of a git repository at a revision, through the `git` tool.",
    name_parameter: "path",
    parameters: &[
        parameter("path", "where the checkout is; the title by default"),
        parameter(
            "ensure",
            "`present` (the default): at the revision, as far as it is known here; `latest`: at what the source has now; `cloned`: only there; `bare`; `absent`",
        ),
        parameter(
            "source",
            "where the repository comes from; needed unless absent",
        ),
        parameter(
            "revision",
            "a branch, a tag or a commit; the source's own branch by default",
        ),
        parameter(
            "force",
            "true gives up local changes and whatever is at the path",
        ),
        parameter("submodules", "true brings submodules along"),
        parameter("depth", "how many commits of history to fetch"),
        parameter("remote", "the name for the source; `origin` by default"),
        parameter("user", "whose the checkout is; git runs as this user"),
        parameter("identity", "the ssh key to use"),
        parameter("provider", "`git`, as Puppet's `vcsrepo` wants it"),
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
