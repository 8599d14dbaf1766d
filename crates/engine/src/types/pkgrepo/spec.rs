//! The parameters of package repositories.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "pkgrepo",
    aliases: &["yumrepo"],
    summary: "A repository of packages: a deb822 or list file with its key for apt, a section of a `.repo` file for dnf. After a change its metadata is fetched, once; if that fails, the change is undone.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter(
            "uris",
            "apt: where the repository is; or the whole `deb …` line as the name",
        ),
        parameter(
            "suites",
            "apt: suites, such as `bookworm`, or a path that ends in `/`",
        ),
        parameter("components", "apt: components, such as `main`"),
        parameter("types", "apt: `deb`, `deb-src`; `deb` by default"),
        parameter("architectures", "apt: architectures; all by default"),
        parameter("format", "apt: `deb822` (the default) or `list`"),
        parameter("trusted", "apt: true takes it without a signature"),
        parameter(
            "key",
            "apt: the armoured key that signs it, put under `/etc/apt/keyrings`",
        ),
        parameter("key_source", "apt: the address of that key"),
        parameter(
            "signed_by",
            "apt: the path of a key that is managed elsewhere",
        ),
        parameter("baseurl", "dnf: where the repository is"),
        parameter("mirrorlist", "dnf: where its mirrors are listed"),
        parameter("metalink", "dnf: where its metalink is"),
        parameter("descr", "dnf: what people call it"),
        parameter("gpgcheck", "dnf: whether packages must be signed"),
        parameter("repo_gpgcheck", "dnf: whether the metadata must be signed"),
        parameter("gpgkey", "dnf: where the keys are"),
        parameter("priority", "dnf: the smaller, the sooner"),
        parameter("cost", "dnf: what getting a package costs"),
        parameter("exclude", "dnf: packages that are not taken from it"),
        parameter("includepkgs", "dnf: packages that alone are taken from it"),
        parameter("metadata_expire", "dnf: how long its metadata is good"),
        parameter("module_hotfixes", "dnf: whether it goes past modules"),
        parameter("skip_if_unavailable", "dnf: whether to go on without it"),
        parameter("sslverify", "dnf: whether to check certificates"),
        parameter("proxy", "dnf: the proxy to use"),
        parameter("enabled", "whether it is used; true by default"),
        parameter("target", "the file; made from the name by default"),
        parameter("refresh", "false: do not fetch its metadata after a change"),
    ],
    states: &[
        StateFunction {
            function: "pkgrepo.managed",
            implies: &[("ensure", "present")],
            arguments: &[
                argument("file", "target"),
                argument("dist", "suites"),
                argument("comps", "components"),
                argument("key_url", "key_source"),
                argument("signedby", "signed_by"),
                argument("humanname", "descr"),
            ],
        },
        StateFunction {
            function: "pkgrepo.absent",
            implies: &[("ensure", "absent")],
            arguments: &[argument("file", "target"), argument("dist", "suites")],
        },
    ],
    example: r#"[{"type": "Pkgrepo", "title": "example", "parameters": {
  "uris": "https://packages.example.com/debian", "suites": "bookworm", "components": ["main"],
  "target": "@ROOT@/example.sources", "refresh": false}}]"#,
};
