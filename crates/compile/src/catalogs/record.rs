//! The stored form of a catalog's record.

use bunraku_model::{CatalogId, CodeId, ContentId, EnvironmentName, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A stored catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogRecord {
    /// The blob with its JSON text.
    pub content: ContentId,
    /// Size of that text in bytes.
    pub size: u64,
    /// The blobs that it refers to.
    pub files: Vec<ContentId>,
    pub node: NodeName,
    pub environment: EnvironmentName,
    /// The first commit that produced this catalog.
    pub code_id: CodeId,
}

/// The record as stored, in any of its states.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) files: Vec<ContentId>,
    pub(super) node: NodeName,
    pub(super) environment: EnvironmentName,
    pub(super) code_id: CodeId,
    /// A new random value for each new record.
    pub(super) incarnation: Uuid,
    /// The time at which the collector found no holders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) condemned: Option<Timestamp>,
}

/// The state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum State {
    /// Files are being written and referenced. Readers do not see the record.
    Writing,
    Kept {
        content: ContentId,
        size: u64,
    },
    /// References are being removed. Readers do not see the record.
    Removing {
        content: Option<ContentId>,
    },
}

impl Record {
    pub(super) fn public(self) -> Option<CatalogRecord> {
        let State::Kept { content, size } = self.state else {
            return None;
        };
        Some(CatalogRecord {
            content,
            size,
            files: self.files,
            node: self.node,
            environment: self.environment,
            code_id: self.code_id,
        })
    }

    pub(super) fn reprieved(&self) -> Self {
        Self {
            condemned: None,
            ..self.clone()
        }
    }

    /// Returns the name under which the record refers to its blobs.
    pub(super) fn referrer(&self, id: CatalogId) -> String {
        format!("catalog/{id}/{}", self.incarnation.simple())
    }

    /// Returns every blob that the record may refer to.
    pub(super) fn contents(&self) -> impl Iterator<Item = ContentId> + '_ {
        let content = match self.state {
            State::Writing => None,
            State::Kept { content, .. } => Some(content),
            State::Removing { content } => content,
        };
        self.files.iter().copied().chain(content)
    }
}
