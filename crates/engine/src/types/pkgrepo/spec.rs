//! The parameters of package repositories.

use crate::spec::{argument, parameter};
use crate::{StateFunction, TypeSpec};

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "pkgrepo",
    aliases: &["yumrepo"],
    summary: "A package repository: a deb822 or list file with its key for apt, or a section of a `.repo` file for dnf. After a change, its metadata is fetched once; if that fails, the change is undone.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter(
            "uris",
            "apt: the URLs of the repository; alternatively, use the whole `deb …` line as the name",
        ),
        parameter(
            "suites",
            "apt: suites, such as `bookworm`, or a path that ends in `/`",
        ),
        parameter("components", "apt: components, such as `main`"),
        parameter("types", "apt: `deb`, `deb-src`; `deb` by default"),
        parameter("architectures", "apt: architectures; all by default"),
        parameter("format", "apt: `deb822` (the default) or `list`"),
        parameter("trusted", "apt: true: accept it without a signature"),
        parameter(
            "key",
            "apt: the armoured signing key, stored in `/etc/apt/keyrings`",
        ),
        parameter("key_source", "apt: the address of the signing key"),
        parameter(
            "signed_by",
            "apt: the path of a signing key that is managed elsewhere",
        ),
        parameter("baseurl", "dnf: the URL of the repository"),
        parameter("mirrorlist", "dnf: the URL of the mirror list"),
        parameter("metalink", "dnf: the URL of the metalink"),
        parameter("descr", "dnf: a description"),
        parameter("gpgcheck", "dnf: whether packages must be signed"),
        parameter("repo_gpgcheck", "dnf: whether the metadata must be signed"),
        parameter("gpgkey", "dnf: the URLs of the signing keys"),
        parameter("priority", "dnf: the priority; lower numbers are preferred"),
        parameter("cost", "dnf: the relative cost of the repository"),
        parameter("exclude", "dnf: packages to exclude"),
        parameter("includepkgs", "dnf: the only packages to include"),
        parameter("metadata_expire", "dnf: how long the metadata is valid"),
        parameter(
            "module_hotfixes",
            "dnf: whether its packages override modules",
        ),
        parameter(
            "skip_if_unavailable",
            "dnf: whether to continue if it is unavailable",
        ),
        parameter("sslverify", "dnf: whether to check certificates"),
        parameter("proxy", "dnf: the proxy to use"),
        parameter(
            "enabled",
            "whether the repository is enabled; true by default",
        ),
        parameter("target", "the file; derived from the name by default"),
        parameter(
            "refresh",
            "false: do not refresh the metadata after a change",
        ),
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
