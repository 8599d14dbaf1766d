//! The declaration of one or several packages.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use super::Status;
use crate::{Declaration, Refusal};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Ensure {
    Installed,
    Latest,
    Version(String),
    Absent,
    Purged,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct DesiredPackage {
    pub(super) name: String,
    pub(super) ensure: Ensure,
}

pub(crate) struct DesiredPackages {
    pub(super) packages: Vec<DesiredPackage>,
    /// `pkgs` was given: each change has the package's own name.
    pub(super) several: bool,
    pub(super) source: Option<String>,
    pub(super) provider: Option<&'static str>,
    pub(super) hold: Option<bool>,
    pub(super) refresh: bool,
    pub(super) install_options: Vec<String>,
    pub(super) uninstall_options: Vec<String>,
    pub(super) recommends: Option<bool>,
    pub(super) replace_configuration: bool,
    pub(super) repository: Option<String>,
    pub(super) lock_timeout: Duration,
}

impl DesiredPackages {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        for name in ["allow_virtual", "reinstall_on_refresh"] {
            declaration.boolean(name)?;
        }
        let given = declaration.text("ensure")?;
        let hold = match declaration.word("mark", &["hold", "none", "manual"])? {
            Some(mark) => Some(mark == "hold"),
            None => declaration.boolean("hold")?,
        };
        let hold = if given.as_deref() == Some("held") {
            Some(true)
        } else {
            hold
        };
        let ensure = ensure(declaration, given)?;
        let packages = packages(declaration, &ensure)?;
        let source = declaration.text("source")?;
        if source.is_some() && packages.len() > 1 {
            return Err(Refusal::other(
                "`source` is for one package, not for `pkgs`",
            ));
        }
        Ok(Self {
            several: declaration.has("pkgs"),
            packages,
            source,
            provider: provider(declaration)?,
            hold,
            refresh: declaration.boolean("refresh")?.unwrap_or(false),
            install_options: options(declaration, "install_options")?,
            uninstall_options: options(declaration, "uninstall_options")?,
            recommends: declaration.boolean("install_recommends")?,
            replace_configuration: declaration.word("configfiles", &["keep", "replace"])?
                == Some("replace"),
            repository: declaration.text("repository")?.filter(|one| is_fit(one)),
            lock_timeout: (declaration.seconds("lock_timeout")?)
                .unwrap_or(Duration::from_secs(600)),
        })
    }

    /// Returns the batch key. Packages with equal options may share one transaction.
    pub(super) fn batch_key(&self) -> String {
        format!(
            "{:?} {:?} {:?} {:?} {} {:?}",
            self.provider,
            self.install_options,
            self.uninstall_options,
            self.recommends,
            self.replace_configuration,
            self.repository
        )
    }
}

impl DesiredPackage {
    pub(super) fn is_to_be_there(&self) -> bool {
        !matches!(self.ensure, Ensure::Absent | Ensure::Purged)
    }

    /// Returns true if the package is in the desired state, apart from holding.
    pub(super) fn is_met(&self, status: &Status) -> bool {
        match &self.ensure {
            Ensure::Installed => status.version.is_some() || status.provided,
            Ensure::Version(wanted) => {
                (status.version.as_deref()).is_some_and(|version| version_fits(wanted, version))
            }
            Ensure::Latest => match (&status.version, &status.candidate) {
                (None, _) => false,
                (Some(version), Some(candidate)) => version == candidate,
                (Some(_), None) => !status.unfetched,
            },
            Ensure::Absent => status.version.is_none(),
            Ensure::Purged => status.version.is_none() && !status.configuration_left,
        }
    }
}

/// Compares versions. `1.2-3` matches itself, and `1.2*` all that start with `1.2`. The
/// epoch and the release may be left out, as users of rpm do.
pub(super) fn version_fits(wanted: &str, version: &str) -> bool {
    let fits = |version: &str| match wanted.strip_suffix('*') {
        Some(start) => version.starts_with(start),
        None => version == wanted,
    };
    if fits(version) {
        return true;
    }
    let without_epoch = version.strip_prefix("0:").unwrap_or(version);
    let without_release = |text: &str| text.rsplit_once('-').map(|(head, _)| head.to_owned());
    fits(without_epoch)
        || [version, without_epoch]
            .iter()
            .any(|text| without_release(text).is_some_and(|text| fits(&text)))
            && !wanted.contains('-')
}

fn ensure(declaration: &Declaration, given: Option<String>) -> Result<Ensure, Refusal> {
    let version = match declaration.text("version")? {
        Some(version) if version == "latest" => return Ok(Ensure::Latest),
        version => version,
    };
    let word = given.as_deref().unwrap_or("installed");
    match (word, version) {
        ("absent", _) => Ok(Ensure::Absent),
        ("purged", _) => Ok(Ensure::Purged),
        (_, Some(version)) => checked_version(declaration, "version", version),
        ("installed" | "present" | "held" | "hold", None) => Ok(Ensure::Installed),
        ("latest", None) => Ok(Ensure::Latest),
        (version, None) => checked_version(declaration, "ensure", version.to_owned()),
    }
}

fn checked_version(
    declaration: &Declaration,
    name: &str,
    version: String,
) -> Result<Ensure, Refusal> {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || ".+-:~_^*".contains(c));
    let star_inside = version.trim_end_matches('*').contains('*');
    if version.is_empty() || version.starts_with('-') || version.contains(odd) || star_inside {
        let expected = "installed, latest, held, absent, purged or a version";
        return Err(declaration.refuse(name, expected));
    }
    Ok(Ensure::Version(version))
}

fn packages(declaration: &Declaration, ensure: &Ensure) -> Result<Vec<DesiredPackage>, Refusal> {
    let Some(list) = declaration.value("pkgs") else {
        let name = declaration.name()?;
        checked_name(&name)?;
        return Ok(vec![DesiredPackage {
            name,
            ensure: ensure.clone(),
        }]);
    };
    let Value::Array(items) = list else {
        return Err(declaration.refuse("pkgs", "a list"));
    };
    let mut packages = Vec::new();
    for item in items {
        let (name, version) = match item {
            Value::String(name) => (name.clone(), None),
            Value::Object(pair) if pair.len() == 1 => {
                let (name, version) = pair.iter().next().expect("it has one");
                let version = match version {
                    Value::String(version) => version.clone(),
                    Value::Number(version) => version.to_string(),
                    _ => return Err(declaration.refuse("pkgs", "names, or names with versions")),
                };
                (name.clone(), Some(version))
            }
            _ => return Err(declaration.refuse("pkgs", "names, or names with versions")),
        };
        checked_name(&name)?;
        let ensure = match (version, ensure) {
            (Some(version), Ensure::Installed) => checked_version(declaration, "pkgs", version)?,
            _ => ensure.clone(),
        };
        packages.push(DesiredPackage { name, ensure });
    }
    if packages.is_empty() {
        return Err(declaration.refuse("pkgs", "at least one name"));
    }
    Ok(packages)
}

/// Refuses names that a manager could mistake for an option, an expression or a file.
fn checked_name(name: &str) -> Result<(), Refusal> {
    let fine = is_fit(name) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    // apt reads `name-` and `name+` as requests to remove and install.
    if fine && !name.ends_with('-') {
        Ok(())
    } else {
        Err(Refusal::other(format!(
            "`{name}` is not a valid package name"
        )))
    }
}

fn is_fit(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".+-_:/".contains(c))
}

/// Reads Puppet's lists of options: texts, and pairs that become `--name=value`.
fn options(declaration: &Declaration, name: &str) -> Result<Vec<String>, Refusal> {
    let items = match declaration.value(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.clone(),
        Some(one) => vec![one.clone()],
    };
    let mut options = Vec::new();
    for item in items {
        match item {
            Value::String(text) => options.push(text),
            Value::Object(pairs) => {
                options.extend(pairs.iter().map(|(option, value)| match value {
                    Value::String(value) => format!("{option}={value}"),
                    value => format!("{option}={value}"),
                }))
            }
            _ => return Err(declaration.refuse(name, "a list of options")),
        }
    }
    Ok(options)
}

fn provider(declaration: &Declaration) -> Result<Option<&'static str>, Refusal> {
    let words = ["apt", "aptitude", "dpkg", "dnf", "yum", "rpm"];
    Ok(declaration
        .word("provider", &words)?
        .map(|word| match word {
            "dnf" | "yum" | "rpm" => "dnf",
            _ => "apt",
        }))
}

/// Returns the names without duplicates.
pub(super) fn names<'a>(desired: impl IntoIterator<Item = &'a DesiredPackages>) -> Vec<&'a str> {
    let mut seen = HashMap::new();
    let mut names = Vec::new();
    for wanted in desired.into_iter().flat_map(|desired| &desired.packages) {
        if seen.insert(wanted.name.as_str(), ()).is_none() {
            names.push(wanted.name.as_str());
        }
    }
    names
}
