//! /etc/os-release and its predecessors, parsed as Facter parses them.

use std::collections::BTreeMap;

/// The pairs of os-release, with names in lower case.
#[derive(Default, Debug)]
pub(super) struct OsRelease(BTreeMap<String, String>);

impl OsRelease {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let line = line.trim();
            let (name, value) = line.split_once('=')?;
            (!line.starts_with('#')).then(|| (name.to_lowercase(), unquote(value)))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the id. All openSUSE variants share one.
    pub(super) fn id(&self) -> Option<String> {
        let id = self.get("id")?.to_lowercase();
        Some(if id.contains("opensuse") {
            "opensuse".to_owned()
        } else {
            id
        })
    }

    /// Returns the version, with at least one dot.
    pub(super) fn version(&self) -> Option<String> {
        let version = self.get("version_id")?;
        Some(if version.contains('.') {
            version.to_owned()
        } else {
            format!("{version}.0")
        })
    }

    /// Returns the name, usually its first word: `Debian`, `RedHat`, `Archlinux`.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.get("name")?;
        let lower = name.to_lowercase();
        let starts = |words: &[&str]| words.iter().any(|word| lower.starts_with(word));
        let words: Vec<&str> = name.split_whitespace().collect();
        let short = if starts(&["red", "oracle", "arch", "manjaro"]) {
            words.iter().take(2).copied().collect()
        } else if lower.ends_with("mariner") {
            (*words.last()?).to_owned()
        } else {
            (*words.first()?).to_owned()
        };
        Some(if starts(&["arch", "manjaro"]) {
            capitalize(&short)
        } else if starts(&["virtuozzo"]) {
            short + "Linux"
        } else {
            short
        })
    }

    /// Returns the code name. If none is given, takes it from the version.
    pub(super) fn codename(&self) -> Option<String> {
        if let Some(codename) = self.get("version_codename") {
            return Some(codename.to_owned());
        }
        let version = self.get("version")?;
        if let Some((_, name)) = version.strip_suffix(')').and_then(|v| v.split_once('(')) {
            return Some(name.to_owned());
        }
        let words: Vec<&str> = version.split_whitespace().collect();
        let letters = |word: &str| word.chars().all(|c| c.is_ascii_alphabetic());
        let pair = words
            .windows(2)
            .find(|pair| letters(pair[0]) && letters(pair[1]))?;
        Some(pair[0].to_lowercase())
    }
}

/// Removes quotes. Facter drops only double quotes, but single quotes and backslashes are legal
/// too.
fn unquote(value: &str) -> String {
    let value = value.trim();
    if let Some(inner) = value
        .strip_prefix('\'')
        .and_then(|value| value.strip_suffix('\''))
    {
        return inner.to_owned();
    }
    value.replace('"', "")
}

/// Converts the first letter to upper case and the rest to lower case.
pub(super) fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    match letters.next() {
        Some(first) => first
            .to_uppercase()
            .chain(letters.as_str().to_lowercase().chars())
            .collect(),
        None => String::new(),
    }
}

/// A release line such as `Rocky Linux release 9.4 (Blue Onyx)`.
#[derive(Debug, PartialEq)]
pub(super) struct ReleaseLine {
    pub(super) description: String,
    /// The text before `release`, without `Linux`, as one word.
    pub(super) id: String,
    pub(super) version: Option<String>,
    pub(super) codename: Option<String>,
}

impl ReleaseLine {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let description = text.trim();
        let (before, after) = description
            .split_once("release")
            .unwrap_or((description, ""));
        let id: String = before
            .split_whitespace()
            .filter(|word| !word.eq_ignore_ascii_case("linux"))
            .collect();
        let version = after.split_whitespace().next().map(str::to_owned);
        let codename = after
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(')'))
            .map(|(name, _)| name.replace(['(', ')'], ""))
            .filter(|name| !name.is_empty());
        (!id.is_empty()).then(|| Self {
            description: description.to_owned(),
            id,
            version,
            codename,
        })
    }

    /// Returns the version if it is a number.
    pub(super) fn number(&self) -> Option<&str> {
        let version = self.version.as_deref()?;
        version
            .starts_with(|c: char| c.is_ascii_digit())
            .then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expect: Expect) {
        let release = OsRelease::parse(text);
        let show = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        expect.assert_eq(&format!(
            "{} | {} | {} | {}",
            show(release.id()),
            show(release.name()),
            show(release.version()),
            show(release.codename())
        ));
    }

    #[test]
    fn names_are_shortened_as_facter_shortens_them() {
        check(
            "ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n",
            expect!["debian | Debian | 12.0 | bookworm"],
        );
        check(
            "ID=\"rhel\"\nNAME=\"Red Hat Enterprise Linux\"\nVERSION_ID=9.4\nVERSION=\"9.4 (Plow)\"\n",
            expect!["rhel | RedHat | 9.4 | Plow"],
        );
        check(
            "ID=arch\nNAME=\"Arch Linux\"\n",
            expect!["arch | Archlinux | – | –"],
        );
        check(
            "# a comment=1\nID='opensuse-tumbleweed'\nNAME='openSUSE Tumbleweed'\n",
            expect!["opensuse | openSUSE | – | –"],
        );
        check(
            "ID=ubuntu\nNAME=Ubuntu\nVERSION=\"14.04.6 LTS, Trusty Tahr\"\nVERSION_ID=14.04\n",
            expect!["ubuntu | Ubuntu | 14.04 | trusty"],
        );
        check("", expect!["– | – | – | –"]);
    }

    #[test]
    fn a_release_line_is_taken_apart() {
        assert_eq!(
            ReleaseLine::parse("Rocky Linux release 9.4 (Blue Onyx)\n"),
            Some(ReleaseLine {
                description: "Rocky Linux release 9.4 (Blue Onyx)".to_owned(),
                id: "Rocky".to_owned(),
                version: Some("9.4".to_owned()),
                codename: Some("Blue Onyx".to_owned()),
            })
        );
        assert_eq!(ReleaseLine::parse(""), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "((NAME|ID|VERSION|VERSION_ID)?=?[\"'(), A-Za-zäß.]{0,20}\n?){0,5}") {
            let release = OsRelease::parse(&text);
            let _ = (release.id(), release.name(), release.version(), release.codename());
            ReleaseLine::parse(&text);
        }
    }
}
