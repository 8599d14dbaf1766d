//! The queue of submissions: one entry per node, and the newest wins.
//!
//! An entry has everything that any server needs to turn an acknowledged
//! submission into the node's facts. Facts of ordinary size are in the entry
//! itself, so that accepting a submission takes one transaction; larger ones are
//! a blob that the entry refers to.

use bunraku_model::{ContentId, FactSetId, NodeName, ServerId};
use bunraku_wire::api::SubmissionOrder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keys;

/// The value of `fact-queue/<node>`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QueuedFacts {
    pub fact_set: FactSetId,
    pub received: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SubmissionOrder>,
    /// The server that accepted it, and so processes it first.
    pub server: ServerId,
    pub payload: Payload,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payload {
    Inline(Map<String, Value>),
    /// Facts that are too large for a value: a blob, referred to by [`queue_referrer`].
    Content(ContentId),
}

impl QueuedFacts {
    /// The blob that the entry refers to.
    pub(crate) fn content(&self) -> Option<ContentId> {
        match self.payload {
            Payload::Inline(_) => None,
            Payload::Content(content) => Some(content),
        }
    }
}

/// The referrer of the blob of a queued submission.
pub(crate) fn queue_referrer(node: &NodeName) -> String {
    keys::fact_queue(node)
}
