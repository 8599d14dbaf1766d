//! The newest version of each module that a machine has seen, so that nobody
//! can bring back an old one with a known hole: it was signed well, once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Verified, Version};

/// What was seen, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(BTreeMap<String, Seen>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Seen {
    version: Version,
    content: String,
}

/// Why a verified module is refused all the same.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    #[error("`{name}` {offered} is older than {newest}, which was here before")]
    Downgrade {
        name: String,
        offered: Version,
        newest: Version,
    },
    #[error(
        "`{name}` {version} was here before with another content: a new content needs a new version"
    )]
    OtherContent { name: String, version: Version },
    #[error("the record of known modules cannot be read")]
    Read(#[from] serde_json::Error),
}

impl Known {
    pub fn parse(bytes: &[u8]) -> Result<Self, KnownError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("names and versions are plain data")
    }

    /// Takes note of a module, unless it is older than what was seen. Says
    /// whether that was news.
    pub fn take(&mut self, module: &Verified) -> Result<bool, KnownError> {
        let manifest = module.manifest();
        let offered = Seen {
            version: manifest.version.clone(),
            content: module.content().to_owned(),
        };
        let Some(newest) = self.0.get(&manifest.name) else {
            self.0.insert(manifest.name.clone(), offered);
            return Ok(true);
        };
        if offered.version < newest.version {
            return Err(KnownError::Downgrade {
                name: manifest.name.clone(),
                offered: offered.version,
                newest: newest.version.clone(),
            });
        }
        if offered.version == newest.version {
            return match offered.content == newest.content {
                true => Ok(false),
                false => Err(KnownError::OtherContent {
                    name: manifest.name.clone(),
                    version: offered.version,
                }),
            };
        }
        self.0.insert(manifest.name.clone(), offered);
        Ok(true)
    }
}
