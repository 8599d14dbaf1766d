//! The kernel's name and versions.

use serde_json::Map;

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::warning::FactWarning;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let name = machine.text("/proc/sys/kernel/ostype")?;
    let release = machine.text("/proc/sys/kernel/osrelease")?;
    Ok(facts(name.trim(), release.trim()))
}

pub(super) fn collect_fips(
    machine: &Machine,
    _: &mut Vec<FactWarning>,
) -> Result<Facts, GroupError> {
    let flag = machine.attribute("/proc/sys/crypto/fips_enabled");
    Ok(single("fips_enabled", flag.as_deref() == Some("1")))
}

/// Returns the machine hardware name, as `uname -m` prints it.
pub(super) fn hardware(machine: &Machine) -> String {
    machine
        .attribute("/proc/sys/kernel/arch")
        .unwrap_or_else(|| {
            rustix::system::uname()
                .machine()
                .to_string_lossy()
                .into_owned()
        })
}

fn facts(name: &str, release: &str) -> Facts {
    let major: Vec<&str> = release.split('.').take(2).collect();
    let numbers: Vec<&str> = release
        .split(|character: char| !character.is_ascii_digit())
        .filter(|number| !number.is_empty())
        .take(3)
        .collect();
    Map::from_iter([
        ("kernel".to_owned(), name.into()),
        ("kernelrelease".to_owned(), release.into()),
        ("kernelversion".to_owned(), numbers.join(".").into()),
        ("kernelmajversion".to_owned(), major.join(".").into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(release: &str, expect: Expect) {
        let facts = facts("Linux", release);
        expect.assert_eq(&format!(
            "{} {}",
            facts["kernelversion"], facts["kernelmajversion"]
        ));
    }

    #[test]
    fn versions_are_cut_as_facter_cuts_them() {
        check("6.1.0-18-amd64", expect![[r#""6.1.0" "6.1""#]]);
        check("5.14.0-427.el9.x86_64", expect![[r#""5.14.0" "5.14""#]]);
        check("6.6-rc2", expect![[r#""6.6.2" "6.6-rc2""#]]);
        check("", expect![[r#""" """#]]);
    }
}
