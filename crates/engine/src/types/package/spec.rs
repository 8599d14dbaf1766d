//! The parameters of packages.

use crate::spec::{argument, function, parameter};
use crate::{Argument, TypeSpec};

const ARGUMENTS: &[Argument] = &[argument("fromrepo", "repository")];

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "package",
    aliases: &["pkg"],
    summary: "A system package, managed with apt or dnf. In genius mode, packages of one package manager that do not depend on each other are changed in one transaction.",
    name_parameter: "name",
    parameters: &[
        parameter(
            "ensure",
            "`installed` or `present` (the default), `latest`, `held`, `absent`, `purged`, or a version (`1.2-3`, `1.2*`)",
        ),
        parameter("version", "the version, as an alternative to `ensure`"),
        parameter(
            "pkgs",
            "names, or names with versions, instead of one name; they change in one transaction",
        ),
        parameter(
            "source",
            "a package file to install from, instead of a repository",
        ),
        parameter(
            "provider",
            "`apt` or `dnf`; the machine's package manager by default",
        ),
        parameter(
            "hold",
            "true: prevent upgrades of the package; false: allow them",
        ),
        parameter("mark", "`hold` or `none`, Puppet's form of `hold`"),
        parameter(
            "refresh",
            "true: refresh the metadata before an installation, once per run",
        ),
        parameter("install_options", "additional options for installations"),
        parameter("uninstall_options", "additional options for removals"),
        parameter(
            "install_recommends",
            "false: do not install recommended packages",
        ),
        parameter(
            "configfiles",
            "`keep` (the default) or `replace` changed configuration files",
        ),
        parameter("repository", "the preferred repository or release"),
        parameter(
            "lock_timeout",
            "seconds to wait for another process that uses the package manager; 600 by default",
        ),
        parameter(
            "allow_virtual",
            "accepted for compatibility with Puppet: virtual packages are always allowed",
        ),
        parameter(
            "reinstall_on_refresh",
            "accepted for compatibility with Puppet; no effect",
        ),
    ],
    states: &[
        function("pkg.installed", &[("ensure", "installed")], ARGUMENTS),
        function("pkg.latest", &[("ensure", "latest")], ARGUMENTS),
        function("pkg.removed", &[("ensure", "absent")], ARGUMENTS),
        function("pkg.purged", &[("ensure", "purged")], ARGUMENTS),
        function("pkg.held", &[("ensure", "held")], ARGUMENTS),
    ],
    example: r#"[
  {"type": "Package", "title": "ca-certificates", "parameters": {"ensure": "installed"}},
  {"type": "Package", "title": "telnetd", "parameters": {"ensure": "absent"}}]"#,
};
