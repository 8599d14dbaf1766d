//! The manifest of a module. The signature covers exactly these bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Version;

/// The version of the protocol between the engine and a module.
pub const PROTOCOL: u32 = 1;

/// The manifest, `module.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub name: String,
    pub version: Version,
    /// The protocol that the program speaks.
    pub protocol: u32,
    /// The program, one of `files`, and its arguments.
    pub command: Vec<String>,
    pub types: Vec<TypeEntry>,
    /// Every file by its path; written by `pack`.
    #[serde(default)]
    pub files: BTreeMap<String, FileEntry>,
}

/// One resource type that the module adds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeEntry {
    pub name: String,
    /// One sentence for people.
    #[serde(default)]
    pub summary: String,
    /// The parameter that defaults to the title.
    #[serde(default = "name")]
    pub name_parameter: String,
    /// Parameters that `observe` reports and that a catalog may set.
    pub properties: Vec<ParameterEntry>,
    /// Other parameters that a catalog may set. They are passed on and never compared.
    #[serde(default)]
    pub parameters: Vec<ParameterEntry>,
    /// State functions. The default is `TYPE.managed`, and with a property `ensure` also
    /// `TYPE.present` and `TYPE.absent`.
    #[serde(default)]
    pub states: Vec<StateEntry>,
    /// The time limit for one answer, in seconds.
    #[serde(default = "timeout")]
    pub timeout: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterEntry {
    pub name: String,
    #[serde(default)]
    pub doc: String,
}

/// A state function and the values that it implies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateEntry {
    pub function: String,
    #[serde(default)]
    pub implies: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    pub sha256: String,
    #[serde(default)]
    pub executable: bool,
}

fn name() -> String {
    "name".to_owned()
}

fn timeout() -> u32 {
    300
}

/// Errors from parsing or checking a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest is invalid")]
    Json(#[source] serde_json::Error),
    #[error("the manifest is for protocol {0}; this program supports {PROTOCOL}")]
    Protocol(u64),
    #[error("`{0}` must consist of lower-case letters, digits and underscores")]
    Name(String),
    #[error("the manifest has no types")]
    NoTypes,
    #[error("`{0}` exists twice")]
    Twice(String),
    #[error("the program `{0}` is not an executable file of the module")]
    Program(String),
    #[error("`{0}` is not a path inside the module")]
    Path(String),
    #[error("the name parameter `{0}` of `{1}` is neither a property nor a parameter of it")]
    NameParameter(String, String),
    #[error("the state function `{0}` must begin with the name of its type")]
    State(String),
}

impl Manifest {
    /// Parses and checks a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        // A later protocol may have other members, so check its number first.
        let value: Value = serde_json::from_slice(bytes).map_err(ManifestError::Json)?;
        match value.get("protocol").and_then(Value::as_u64) {
            Some(protocol) if protocol != u64::from(PROTOCOL) => {
                return Err(ManifestError::Protocol(protocol));
            }
            _ => {}
        }
        let manifest: Self = serde_json::from_value(value).map_err(ManifestError::Json)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestError> {
        plain(&self.name)?;
        if self.types.is_empty() {
            return Err(ManifestError::NoTypes);
        }
        once(self.types.iter().map(|one| &one.name))?;
        self.types.iter().try_for_each(TypeEntry::check)?;
        for path in self.files.keys() {
            if !is_inside(path) {
                return Err(ManifestError::Path(path.clone()));
            }
        }
        Ok(())
    }

    /// Checks that the program exists. Call this once the files are known.
    pub(crate) fn check_program(&self) -> Result<(), ManifestError> {
        let program = self.command.first().cloned().unwrap_or_default();
        match self.files.get(&program) {
            Some(FileEntry {
                executable: true, ..
            }) => Ok(()),
            _ => Err(ManifestError::Program(program)),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest is plain data");
        bytes.push(b'\n');
        bytes
    }
}

impl TypeEntry {
    fn check(&self) -> Result<(), ManifestError> {
        plain(&self.name)?;
        let all = || self.properties.iter().chain(&self.parameters);
        all().try_for_each(|one| plain(&one.name))?;
        once(all().map(|one| &one.name))?;
        let named =
            self.name_parameter == "name" || all().any(|one| one.name == self.name_parameter);
        if !named {
            return Err(ManifestError::NameParameter(
                self.name_parameter.clone(),
                self.name.clone(),
            ));
        }
        for state in &self.states {
            match state.function.split_once('.') {
                Some((module, function)) if module == self.name => plain(function)?,
                _ => return Err(ManifestError::State(state.function.clone())),
            }
        }
        Ok(())
    }

    pub fn has_ensure(&self) -> bool {
        self.properties.iter().any(|one| one.name == "ensure")
    }
}

fn plain(name: &str) -> Result<(), ManifestError> {
    let mut letters = name.chars();
    let good = letters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '_'))
        && name.len() <= 64;
    if good {
        Ok(())
    } else {
        Err(ManifestError::Name(name.chars().take(80).collect()))
    }
}

fn once<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), ManifestError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(ManifestError::Twice(name.clone()));
        }
    }
    Ok(())
}

/// Returns whether the path is relative and has no part that leads elsewhere.
pub(crate) fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= 200
        && !path.contains(['\\', '\0'])
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}
