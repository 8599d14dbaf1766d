//! The pointer to a node's newest facts, and the list of earlier ones.

use bunraku_model::{ContentId, FactSetId, NodeName};
use bunraku_wire::api::SubmissionOrder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The value of `nodes/<node>/facts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FactsPointer {
    pub fact_set: FactSetId,
    pub content: ContentId,
    pub changed: Timestamp,
    pub received: Timestamp,
    /// The order of the newest submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SubmissionOrder>,
}

/// The value of `nodes/<node>/fact-history`: earlier fact sets, newest first.
///
/// It has its own key because the pointer is written with every submission, and
/// the history only when something changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FactHistory(pub Vec<PastFacts>);

/// A fact set that was the newest until `replaced`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PastFacts {
    pub fact_set: FactSetId,
    pub content: ContentId,
    pub changed: Timestamp,
    pub replaced: Timestamp,
}

impl FactHistory {
    /// Returns the history with one more entry at the front, and at most `most` entries.
    pub(crate) fn with(&self, past: PastFacts, most: usize) -> Self {
        let all = std::iter::once(past).chain(self.0.iter().cloned());
        Self(all.take(most).collect())
    }

    pub(crate) fn contents(&self) -> impl Iterator<Item = ContentId> {
        self.0.iter().map(|past| past.content)
    }
}

/// The referrer of the blobs of a node's newest and earlier facts.
pub(crate) fn referrer(node: &NodeName) -> String {
    format!("facts/{node}")
}
