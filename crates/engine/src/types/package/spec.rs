//! The parameters of packages.

use crate::spec::{argument, parameter};
use crate::{Argument, StateFunction, TypeSpec};

const ARGUMENTS: &[Argument] = &[argument("fromrepo", "repository")];

const fn function(
    function: &'static str,
    implies: &'static [(&'static str, &'static str)],
) -> StateFunction {
    StateFunction {
        function,
        implies,
        arguments: ARGUMENTS,
    }
}

pub(super) static SPEC: TypeSpec = TypeSpec {
    name: "package",
    aliases: &["pkg"],
    summary: "A package of the system, through apt or dnf. In genius mode all packages of one manager that may go together go in one transaction.",
    name_parameter: "name",
    parameters: &[
        parameter(
            "ensure",
            "`installed` or `present` (the default), `latest`, `held`, `absent`, `purged`, or a version (`1.2-3`, `1.2*`)",
        ),
        parameter("version", "the version, as an alternative to `ensure`"),
        parameter(
            "pkgs",
            "names, or names with versions, instead of one name; they change together",
        ),
        parameter(
            "source",
            "a package file to install from, instead of a repository",
        ),
        parameter(
            "provider",
            "`apt` or `dnf`; what the machine has by default",
        ),
        parameter(
            "hold",
            "true keeps upgrades away from the package, false lets them",
        ),
        parameter("mark", "`hold` or `none`, as Puppet says `hold`"),
        parameter(
            "refresh",
            "true refreshes the metadata before an install, once a run",
        ),
        parameter(
            "install_options",
            "more options for the manager when it installs",
        ),
        parameter(
            "uninstall_options",
            "more options for the manager when it removes",
        ),
        parameter(
            "install_recommends",
            "false leaves out what is only recommended",
        ),
        parameter(
            "configfiles",
            "`keep` (the default) or `replace`: what happens to changed configuration files",
        ),
        parameter("repository", "the repository or release to prefer"),
        parameter(
            "lock_timeout",
            "seconds to wait for another user of the manager; 600 by default",
        ),
        parameter(
            "allow_virtual",
            "accepted for Puppet's sake: provided names always count",
        ),
        parameter(
            "reinstall_on_refresh",
            "accepted for Puppet's sake, without effect",
        ),
    ],
    states: &[
        function("pkg.installed", &[("ensure", "installed")]),
        function("pkg.latest", &[("ensure", "latest")]),
        function("pkg.removed", &[("ensure", "absent")]),
        function("pkg.purged", &[("ensure", "purged")]),
        function("pkg.held", &[("ensure", "held")]),
    ],
    example: r#"[
  {"type": "Package", "title": "ca-certificates", "parameters": {"ensure": "installed"}},
  {"type": "Package", "title": "telnetd", "parameters": {"ensure": "absent"}}]"#,
};
