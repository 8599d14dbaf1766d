//! Contexts: several fleets, each with its servers and credentials, and the one in use.
//!
//! They are in `contexts.toml` in the user's configuration directory. The file has no secrets; it
//! names directories with credentials.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::global_options::Global;

/// One fleet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FleetContext {
    pub(crate) servers: Vec<String>,
    pub(crate) credentials: PathBuf,
}

/// All contexts of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserContexts {
    /// The context in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, FleetContext>,
}

/// Returns the user's configuration directory: `$XDG_CONFIG_HOME/bunraku` or `~/.config/bunraku`.
pub(crate) fn user_directory() -> Option<PathBuf> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let configuration = absolute("XDG_CONFIG_HOME");
    let configuration = configuration.or_else(|| absolute("HOME").map(|it| it.join(".config")));
    configuration.map(|directory| directory.join("bunraku"))
}

impl UserContexts {
    /// Reads the user's contexts. Without a file, there are none.
    pub(crate) fn load() -> Result<Self, Failure> {
        match user_directory() {
            Some(directory) => Self::load_from(&directory.join("contexts.toml")),
            None => Ok(Self::default()),
        }
    }

    fn load_from(path: &Path) -> Result<Self, Failure> {
        let text = match bunraku_files::read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => {
                let message = format!("cannot read {}", path.display());
                return Err(Failure::new(message).caused_by(&error));
            }
        };
        toml::from_str(&text).map_err(|error| {
            let message = format!("{} is not valid", path.display());
            Failure::new(message)
                .caused_by(&error)
                .hint("correct the file, or delete it and add the contexts again")
        })
    }

    /// Replaces the file in one step.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let directory = user_directory().ok_or_else(|| {
            Failure::new("there is no place for contexts").hint("set HOME or XDG_CONFIG_HOME")
        })?;
        let path = directory.join("contexts.toml");
        let text = toml::to_string(self)?;
        let saved = std::fs::create_dir_all(&directory)
            .and_then(|()| bunraku_files::replace(&path, text.as_bytes(), 0o600));
        saved.map_err(|error| {
            Failure::new(format!("cannot write {}", path.display())).caused_by(&error)
        })
    }

    /// Returns a context by its name.
    pub(crate) fn named(&self, name: &str) -> Result<&FleetContext, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let failure = Failure::new(format!("there is no context `{name}`"));
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            match names.as_slice() {
                [] => failure.hint("there are none yet; `bunraku context add -h` has an example"),
                names => failure.hint(format!("there is {}", names.join(", "))),
            }
        })
    }
}

/// Fills in the servers and credentials of a context: of the one that is named, or of the one in
/// use. Flags and environment variables come first.
pub(crate) fn fill_in(global: &mut Global) -> Result<(), Failure> {
    if global.context.is_none() && !global.servers.is_empty() && global.credentials.is_some() {
        return Ok(());
    }
    let contexts = UserContexts::load()?;
    let context = match (&global.context, &contexts.current) {
        (Some(name), _) | (None, Some(name)) => contexts.named(name)?,
        (None, None) => return Ok(()),
    };
    if global.servers.is_empty() {
        global.servers.clone_from(&context.servers);
    }
    if global.credentials.is_none() {
        global.credentials = Some(context.credentials.clone());
    }
    Ok(())
}
