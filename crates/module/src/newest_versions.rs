//! The newest version of each module that a machine has seen. This prevents downgrades: an old
//! version with a known vulnerability still has a valid signature.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{VerifiedModule, Version};

/// The newest version seen of each module, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownVersions(BTreeMap<String, KnownVersion>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct KnownVersion {
    version: Version,
    content: String,
}

/// Reasons to reject a verified module.
#[derive(Debug, thiserror::Error)]
pub enum KnownVersionError {
    #[error("`{name}` {offered} is older than {newest}, which was used before")]
    Downgrade {
        name: String,
        offered: Version,
        newest: Version,
    },
    #[error(
        "`{name}` {version} was used before with different content: changed content needs a new version"
    )]
    OtherContent { name: String, version: Version },
    #[error("cannot read the record of known modules")]
    Read(#[from] serde_json::Error),
}

impl KnownVersions {
    pub fn parse(bytes: &[u8]) -> Result<Self, KnownVersionError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("names and versions are plain data")
    }

    /// Records a module, unless it is older than the recorded one. Returns whether the record
    /// changed.
    pub fn take(&mut self, module: &VerifiedModule) -> Result<bool, KnownVersionError> {
        let manifest = module.manifest();
        let offered = KnownVersion {
            version: manifest.version.clone(),
            content: module.content().to_owned(),
        };
        let Some(newest) = self.0.get(&manifest.name) else {
            self.0.insert(manifest.name.clone(), offered);
            return Ok(true);
        };
        if offered.version < newest.version {
            return Err(KnownVersionError::Downgrade {
                name: manifest.name.clone(),
                offered: offered.version,
                newest: newest.version.clone(),
            });
        }
        if offered.version == newest.version {
            return if offered.content == newest.content {
                Ok(false)
            } else {
                Err(KnownVersionError::OtherContent {
                    name: manifest.name.clone(),
                    version: offered.version,
                })
            };
        }
        self.0.insert(manifest.name.clone(), offered);
        Ok(true)
    }
}
