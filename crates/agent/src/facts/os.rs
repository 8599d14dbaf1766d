//! The operating system: name, family, release, distribution.
//!
//! Facter has a small class tree per distribution. [`Flavour`] is the part of it that matters here.
//! An unknown id is looked up by `ID_LIKE`.

use serde_json::{Value, json};

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::os_release::{OsRelease, ReleaseLine, capitalize};
use super::warning::FactWarning;
use super::{kernel, selinux};

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let system = System::read(machine);
    let hardware = kernel::hardware(machine);
    let mut os = Facts::new();
    put(&mut os, "name", system.name());
    put(&mut os, "family", system.family());
    put(&mut os, "release", system.release(machine));
    put(&mut os, "distro", system.distro(machine));
    put(
        &mut os,
        "architecture",
        Some(system.architecture(&hardware)),
    );
    put(&mut os, "hardware", Some(hardware));
    put(&mut os, "selinux", Some(selinux::facts(machine)));
    Ok(single("os", Value::Object(os)))
}

/// Returns the processor type, as `uname -p` prints it. Red Hat, SUSE and Ubuntu patch `uname` so
/// that it knows an answer.
pub(super) fn processor_type(machine: &Machine, hardware: &str) -> String {
    use Flavour::*;
    match System::read(machine).flavour {
        Amazon | Mint | Oracle | RedHat | Suse | Ubuntu => hardware.to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// A kind of distribution, which determines where its release number comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Flavour {
    Alpine,
    Amazon,
    Debian,
    Devuan,
    Gentoo,
    Mariner,
    Mint,
    Oracle,
    Photon,
    RedHat,
    Suse,
    Ubuntu,
    Other,
}

impl Flavour {
    fn of_id(id: &str) -> Option<Self> {
        Some(match id {
            "debian" | "elementary" | "raspbian" => Self::Debian,
            "ubuntu" => Self::Ubuntu,
            "linuxmint" => Self::Mint,
            "devuan" => Self::Devuan,
            "rhel" | "fedora" | "centos" | "scientific" | "meego" | "oel" | "ovs" => Self::RedHat,
            "amzn" => Self::Amazon,
            "ol" => Self::Oracle,
            "sles" | "sled" | "opensuse" => Self::Suse,
            "gentoo" => Self::Gentoo,
            "alpine" => Self::Alpine,
            "photon" => Self::Photon,
            "mariner" => Self::Mariner,
            _ => return None,
        })
    }

    fn is_debian(self) -> bool {
        matches!(
            self,
            Self::Debian | Self::Devuan | Self::Mint | Self::Ubuntu
        )
    }

    fn is_red_hat(self) -> bool {
        matches!(self, Self::Amazon | Self::Oracle | Self::RedHat)
    }
}

struct System {
    os_release: OsRelease,
    /// The line from /etc/redhat-release, or from /etc/system-release on Amazon Linux.
    line: Option<ReleaseLine>,
    flavour: Flavour,
}

impl System {
    fn read(machine: &Machine) -> Self {
        let os_release = machine
            .optional("/etc/os-release")
            .or_else(|| machine.optional("/usr/lib/os-release"));
        let os_release = OsRelease::parse(&os_release.unwrap_or_default());
        let flavour = flavour(machine, &os_release);
        let line = machine.optional(match flavour {
            Flavour::Amazon => "/etc/system-release",
            _ => "/etc/redhat-release",
        });
        Self {
            line: line.as_deref().and_then(ReleaseLine::parse),
            os_release,
            flavour,
        }
    }

    fn name(&self) -> Option<String> {
        match self.flavour {
            Flavour::Mint => self.os_release.id().as_deref().map(capitalize),
            _ => self
                .os_release
                .name()
                .or_else(|| Some(self.line.as_ref()?.id.clone())),
        }
    }

    fn family(&self) -> Option<String> {
        match self.flavour {
            flavour if flavour.is_red_hat() => Some("RedHat".to_owned()),
            Flavour::Suse => Some("Suse".to_owned()),
            _ => {
                let id = self.os_release.id();
                let like = self.os_release.get("id_like").or(id.as_deref())?;
                Some(capitalize(family_of(like)))
            }
        }
    }

    fn architecture(&self, hardware: &str) -> String {
        let bytes = hardware.as_bytes();
        let old_intel = matches!(bytes, [b'i', b'3'..=b'6', b'8', b'6', ..]);
        match hardware {
            "x86_64" if self.flavour.is_debian() => "amd64".to_owned(),
            _ if old_intel || hardware.contains("pentium") => "i386".to_owned(),
            _ => hardware.to_owned(),
        }
    }

    /// Returns `os.release`.
    fn release(&self, machine: &Machine) -> Option<Value> {
        let version = self.os_release.version();
        let own = |path: &str| machine.attribute(path);
        match self.flavour {
            Flavour::Debian => Some(debian_release(&own("/etc/debian_version")?)),
            Flavour::Ubuntu | Flavour::Other => {
                let version = version?;
                Some(json!({"full": version, "major": version}))
            }
            Flavour::Suse => {
                let version = version?;
                let major = version.split('.').next();
                Some(
                    json!({"full": version, "major": major, "minor": version.split('.').next_back()}),
                )
            }
            _ => self
                .own_version(machine)
                .or(version)
                .map(|version| split_release(&version)),
        }
    }

    /// Returns the version from the distribution's own file.
    fn own_version(&self, machine: &Machine) -> Option<String> {
        let line = |path: &str| {
            let line = ReleaseLine::parse(&machine.optional(path)?)?;
            Some(line.number()?.to_owned())
        };
        let after = |path: &str, word: &str, last: fn(char) -> bool| {
            let text = machine.optional(path)?;
            let (_, rest) = text.split_once(word)?;
            let version = rest.split(|c: char| !last(c)).next()?;
            (!version.is_empty()).then(|| version.to_owned())
        };
        let digit = |c: char| c.is_ascii_digit();
        let number = |c: char| c.is_ascii_digit() || c == '.';
        match self.flavour {
            Flavour::Alpine => machine.attribute("/etc/alpine-release"),
            Flavour::Devuan => machine.attribute("/etc/devuan_version"),
            Flavour::Gentoo => line("/etc/gentoo-release"),
            Flavour::Oracle => line("/etc/oracle-release"),
            Flavour::Mint => after("/etc/linuxmint/info", "RELEASE=", digit),
            Flavour::Photon => after("/etc/lsb-release", "DISTRIB_RELEASE=\"", number),
            Flavour::Mariner => after("/etc/mariner-release", "CBL-Mariner ", number),
            Flavour::Amazon => Some(self.line.as_ref()?.number()?.to_owned()),
            Flavour::RedHat => self.line.as_ref()?.version.clone(),
            _ => None,
        }
    }

    /// Returns `os.distro`, which Facter gets from `lsb_release` if it is installed.
    fn distro(&self, machine: &Machine) -> Option<Value> {
        let mut distro = Facts::new();
        let pretty = self.os_release.get("pretty_name");
        if self.flavour.is_debian() {
            put(&mut distro, "codename", self.os_release.codename());
            put(&mut distro, "description", pretty);
            put(
                &mut distro,
                "id",
                self.os_release.id().as_deref().map(capitalize),
            );
            put(&mut distro, "release", self.debian_distro_release(machine));
        } else if self.flavour.is_red_hat() {
            let line = self.line.as_ref();
            let codename = line.and_then(|line| line.codename.clone());
            let unnamed = (self.flavour == Flavour::Amazon).then(|| "n/a".to_owned());
            put(&mut distro, "codename", codename.or(unnamed));
            put(
                &mut distro,
                "description",
                line.map(|line| line.description.clone()),
            );
            put(&mut distro, "id", line.map(|line| line.id.clone()));
            let version = line.and_then(|line| line.version.clone());
            let version = version.or_else(|| self.os_release.version());
            put(
                &mut distro,
                "release",
                version.as_deref().map(split_release),
            );
        } else if self.flavour == Flavour::Suse {
            let codename = self.os_release.get("version_codename").unwrap_or("n/a");
            let version = self.os_release.version().unwrap_or_default();
            let id = if version.starts_with("12") {
                "SUSE LINUX"
            } else {
                "SUSE"
            };
            put(&mut distro, "codename", Some(codename));
            put(&mut distro, "description", pretty);
            put(&mut distro, "id", Some(id));
            put(&mut distro, "release", self.release(machine));
        } else {
            distro = lsb_release(&machine.optional("/etc/lsb-release").unwrap_or_default());
        }
        (!distro.is_empty()).then_some(Value::Object(distro))
    }

    fn debian_distro_release(&self, machine: &Machine) -> Option<Value> {
        match self.flavour {
            Flavour::Ubuntu | Flavour::Mint => {
                let version = self.os_release.version()?;
                Some(json!({"full": version, "major": version}))
            }
            Flavour::Devuan => Some(split_release(&machine.attribute("/etc/devuan_version")?)),
            _ => Some(debian_release(&machine.attribute("/etc/debian_version")?)),
        }
    }
}

fn flavour(machine: &Machine, os_release: &OsRelease) -> Flavour {
    if machine.exists("/etc/devuan_version") {
        return Flavour::Devuan;
    }
    let like = os_release.get("id_like").unwrap_or_default();
    let id = os_release.id();
    if id.is_none() && machine.exists("/etc/redhat-release") {
        return Flavour::RedHat;
    }
    id.as_deref()
        .into_iter()
        .chain(like.split_whitespace())
        .find_map(Flavour::of_id)
        .unwrap_or(Flavour::Other)
}

fn family_of(like: &str) -> &str {
    const FAMILIES: [(&str, &[&str]); 6] = [
        (
            "RedHat",
            &[
                "redhat",
                "rhel",
                "fedora",
                "centos",
                "scientific",
                "ascendos",
                "cloudlinux",
                "psbm",
                "oraclelinux",
                "ovs",
                "oel",
                "amazon",
                "xenserver",
                "xcp-ng",
                "virtuozzo",
                "photon",
                "mariner",
            ],
        ),
        (
            "Debian",
            &["debian", "ubuntu", "huaweios", "linuxmint", "devuan", "kde"],
        ),
        ("Suse", &["sles", "sled", "suse"]),
        ("Gentoo", &["gentoo"]),
        ("Archlinux", &["arch", "manjaro"]),
        ("Mandrake", &["mandrake", "mandriva", "mageia"]),
    ];
    let lower = like.to_lowercase();
    FAMILIES
        .iter()
        .find(|(_, members)| members.iter().any(|member| lower.contains(member)))
        .map_or(like, |(family, _)| family)
}

fn split_release(version: &str) -> Value {
    let mut parts = version.split('.');
    let mut release = single("full", version);
    put(&mut release, "major", parts.next());
    put(&mut release, "minor", parts.next());
    Value::Object(release)
}

/// Parses a Debian release. The minor number loses a leading zero: `9.04` is 9 and 4.
fn debian_release(version: &str) -> Value {
    let mut release = split_release(version);
    if let Some(minor) = release.get("minor").and_then(Value::as_str) {
        let bytes = minor.as_bytes();
        if matches!(bytes, [b'0', b'1'..=b'9', ..]) {
            release["minor"] = json!(minor[1..]);
        }
    }
    release
}

/// Parses the file that the `lsb_release` command reads.
fn lsb_release(text: &str) -> Facts {
    let file = OsRelease::parse(text);
    let mut distro = Facts::new();
    put(&mut distro, "id", file.get("distrib_id"));
    put(&mut distro, "codename", file.get("distrib_codename"));
    put(&mut distro, "description", file.get("distrib_description"));
    put(
        &mut distro,
        "release",
        file.get("distrib_release").map(split_release),
    );
    distro
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_split() {
        assert_eq!(split_release("9"), json!({"full": "9", "major": "9"}));
        assert_eq!(
            debian_release("9.04"),
            json!({"full": "9.04", "major": "9", "minor": "4"})
        );
        assert_eq!(debian_release("trixie/sid")["major"], "trixie/sid");
    }

    #[test]
    fn families_are_found_in_what_the_system_is_like() {
        assert_eq!(family_of("rhel centos fedora"), "RedHat");
        assert_eq!(family_of("suse opensuse"), "Suse");
        assert_eq!(family_of("alpine"), "alpine");
    }
}
