//! What the store has of a catalog.

use bunraku_model::{CatalogId, CodeId, ContentId, EnvironmentName, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A catalog that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogRecord {
    /// The blob with its JSON text.
    pub content: ContentId,
    /// Bytes of that text.
    pub size: u64,
    /// The blobs that it refers to.
    pub files: Vec<ContentId>,
    pub node: NodeName,
    pub environment: EnvironmentName,
    /// The first commit that gave this catalog.
    pub code_id: CodeId,
}

/// The record as it is kept, in any of its states.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) files: Vec<ContentId>,
    pub(super) node: NodeName,
    pub(super) environment: EnvironmentName,
    pub(super) code_id: CodeId,
    /// Drawn anew each time a record comes to be.
    pub(super) incarnation: Uuid,
    /// Nothing held it when the collector looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) condemned: Option<Timestamp>,
}

/// Where a record stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum State {
    /// Files are being written and referred to; for readers it does not exist.
    Writing,
    Kept {
        content: ContentId,
        size: u64,
    },
    /// References are being taken back; for readers it does not exist.
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

    /// The name under which its blobs are referred to.
    pub(super) fn referrer(&self, id: CatalogId) -> String {
        format!("catalog/{id}/{}", self.incarnation.simple())
    }

    /// Every blob that it may refer to.
    pub(super) fn contents(&self) -> impl Iterator<Item = ContentId> + '_ {
        let content = match self.state {
            State::Writing => None,
            State::Kept { content, .. } => Some(content),
            State::Removing { content } => content,
        };
        self.files.iter().copied().chain(content)
    }
}
