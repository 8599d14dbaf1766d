//! The declaration of a repository, and the resulting file.

use super::apt_source::Source;
use super::ini;
use crate::types::{presence, single_line};
use crate::{Declaration, Refusal};

pub(crate) struct DesiredRepository {
    pub(super) name: String,
    pub(super) present: bool,
    pub(super) target: String,
    pub(super) key: Option<KeyWish>,
    pub(super) signed_by: Option<String>,
    pub(super) refresh: bool,
    /// Part of it is a secret: no diff is made.
    pub(super) secret: bool,
    enabled: bool,
    format: Format,
}

pub(super) struct KeyWish {
    pub(super) path: String,
    pub(super) text: Option<Vec<u8>>,
    pub(super) address: Option<String>,
}

enum Format {
    Deb822(Source),
    List(Source),
    /// The settings of the section. `None` removes a setting.
    Ini(Vec<(String, Option<String>)>),
}

const INI_SETTINGS: &[&str] = &[
    "baseurl",
    "mirrorlist",
    "metalink",
    "gpgcheck",
    "repo_gpgcheck",
    "gpgkey",
    "priority",
    "cost",
    "exclude",
    "includepkgs",
    "metadata_expire",
    "module_hotfixes",
    "skip_if_unavailable",
    "sslverify",
    "proxy",
];

impl DesiredRepository {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        let name = declaration.name()?;
        if name.contains(char::is_control) || name.is_empty() {
            return Err(Refusal::other("a repository's name must be a single line"));
        }
        let yum = declaration
            .reference()
            .type_name()
            .eq_ignore_ascii_case("yumrepo")
            || ["baseurl", "mirrorlist", "metalink"]
                .iter()
                .any(|one| declaration.has(one));
        let mut desired = if yum {
            dnf(declaration, name)?
        } else {
            apt(declaration, name)?
        };
        desired.present = presence::present(declaration)?;
        desired.refresh = declaration.boolean("refresh")?.unwrap_or(true);
        desired.enabled = declaration.boolean("enabled")?.unwrap_or(true);
        desired.secret = (declaration.parameters().keys()).any(|one| declaration.is_sensitive(one));
        if let Some(target) = single_line::line(declaration, "target")? {
            desired.target = target;
        }
        desired.complete()?;
        Ok(desired)
    }

    fn complete(&self) -> Result<(), Refusal> {
        match &self.format {
            _ if !self.present => Ok(()),
            Format::Deb822(source) | Format::List(source) => source.complete(),
            Format::Ini(settings) => {
                let is_address = |(name, value): &(String, Option<String>)| {
                    matches!(name.as_str(), "baseurl" | "mirrorlist" | "metalink")
                        && value.is_some()
                };
                settings
                    .iter()
                    .any(is_address)
                    .then_some(())
                    .ok_or(Refusal::Missing("baseurl"))
            }
        }
    }

    pub(super) fn manager(&self) -> &'static str {
        match self.format {
            Format::Ini(_) => "dnf",
            _ => "apt",
        }
    }

    /// Returns true if metadata is needed. A removed or disabled repository needs none.
    pub(super) fn wants_refresh(&self) -> bool {
        self.refresh && self.present && self.enabled
    }

    /// Returns the desired file, given the current one. `None` means no file.
    pub(super) fn file_after(&self, old: Option<&[u8]>) -> Option<Vec<u8>> {
        let old_content = old.unwrap_or_default();
        match &self.format {
            Format::Deb822(source) => self
                .present
                .then(|| source.deb822(self.enabled).into_bytes()),
            Format::List(source) => {
                let new = source.put(old_content, self.present, self.enabled);
                (self.present || (old.is_some() && !new.is_empty())).then_some(new)
            }
            Format::Ini(settings) => {
                let new = ini::put(old_content, &self.name, settings, self.present);
                let empty = new.iter().all(u8::is_ascii_whitespace);
                (self.present || (old.is_some() && !empty)).then_some(new)
            }
        }
    }

    /// Returns true if the file contains the repository in some form.
    pub(super) fn is_in(&self, old: &[u8]) -> bool {
        match &self.format {
            Format::Deb822(_) => true,
            Format::List(source) => source.is_in(old),
            Format::Ini(_) => ini::has(old, &self.name),
        }
    }
}

fn file_name(name: &str) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(fit).collect();
    name.trim_matches(['-', '.']).to_owned()
}

fn apt(declaration: &Declaration, name: String) -> Result<DesiredRepository, Refusal> {
    let line = Source::read(&name);
    let listed = match declaration.word("format", &["deb822", "list"])? {
        Some(format) => format == "list",
        None => line.is_some(),
    };
    let mut source = line.clone().unwrap_or_default();
    let lists = [
        ("types", &mut source.types),
        ("uris", &mut source.uris),
        ("suites", &mut source.suites),
        ("components", &mut source.components),
        ("architectures", &mut source.architectures),
    ];
    for (parameter, field) in lists {
        if let Some(given) = declaration.texts(parameter)? {
            // Salt writes `main,contrib`.
            let parts = given
                .iter()
                .flat_map(|one| one.split([',', ' ']))
                .filter(|one| !one.is_empty());
            *field = parts.map(str::to_owned).collect();
            if !field.iter().all(|one| single_line::is_word(one)) {
                return Err(declaration.refuse(parameter, "words without white space"));
            }
        }
    }
    if let Some(trusted) = declaration.boolean("trusted")? {
        source.trusted = trusted;
    }
    let base = match &line {
        Some(line) => file_name(&format!(
            "{}-{}",
            line.uris.join("-"),
            line.suites.join("-")
        )),
        None => file_name(&name),
    };
    if base.is_empty() {
        return Err(Refusal::other(format!(
            "`{name}` is not a valid repository name"
        )));
    }
    let key = key(declaration, &base)?;
    let signed_by = single_line::word(declaration, "signed_by")?;
    if let Some(path) = key.as_ref().map(|key| &key.path).or(signed_by.as_ref()) {
        source.signed_by = Some(path.clone());
    }
    let ending = if listed { "list" } else { "sources" };
    Ok(DesiredRepository {
        name,
        target: format!("/etc/apt/sources.list.d/{base}.{ending}"),
        key,
        signed_by,
        format: if listed {
            Format::List(source)
        } else {
            Format::Deb822(source)
        },
        present: true,
        refresh: true,
        secret: false,
        enabled: true,
    })
}

fn key(declaration: &Declaration, base: &str) -> Result<Option<KeyWish>, Refusal> {
    let text = declaration.bytes("key")?;
    let address = single_line::line(declaration, "key_source")?;
    let ending = match (&text, &address) {
        (None, None) => return Ok(None),
        (Some(text), _) if text.starts_with(b"-----BEGIN PGP") => "asc",
        (Some(_), _) => return Err(Refusal::other("`key` must be an armoured PGP key")),
        // apt decides by the file extension.
        (None, Some(address)) if address.ends_with(".gpg") => "gpg",
        (None, Some(_)) => "asc",
    };
    let path = format!("/etc/apt/keyrings/{base}.{ending}");
    Ok(Some(KeyWish {
        path,
        text,
        address,
    }))
}

fn dnf(declaration: &Declaration, name: String) -> Result<DesiredRepository, Refusal> {
    if !single_line::is_word(&name) || name.contains(['[', ']', '/']) {
        return Err(Refusal::other(format!(
            "`{name}` is not a valid repository name"
        )));
    }
    let mut settings = Vec::new();
    let descr = single_line::line(declaration, "descr")?;
    settings.push((
        "name".to_owned(),
        Some(descr.unwrap_or_else(|| name.clone())),
    ));
    let enabled = declaration.boolean("enabled")?.unwrap_or(true);
    settings.push(("enabled".to_owned(), Some(u8::from(enabled).to_string())));
    for setting in INI_SETTINGS {
        let Some(given) = declaration.texts(setting)? else {
            continue;
        };
        if given.iter().any(|one| one.contains(char::is_control)) {
            return Err(declaration.refuse(setting, "a single line"));
        }
        let value = given.iter().map(|one| match one.as_str() {
            "true" => "1",
            "false" => "0",
            other => other,
        });
        let value = value.collect::<Vec<_>>().join(" ");
        settings.push(((*setting).to_owned(), (value != "absent").then_some(value)));
    }
    Ok(DesiredRepository {
        target: format!("/etc/yum.repos.d/{}.repo", file_name(&name)),
        name,
        key: None,
        signed_by: None,
        format: Format::Ini(settings),
        present: true,
        refresh: true,
        secret: false,
        enabled: true,
    })
}
