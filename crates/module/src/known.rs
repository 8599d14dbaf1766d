//! The newest version of each module that a machine has seen. This prevents downgrades: an old
//! version with a known vulnerability still has a valid signature.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Verified, Version};

/// The newest version seen of each module, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(BTreeMap<String, Seen>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Seen {
    version: Version,
    content: String,
}

/// Reasons to reject a verified module.
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

    /// Records a module, unless it is older than the recorded one. Returns whether the record
    /// changed.
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
