//! The queue of submissions: one entry per node, and the newest wins.
//!
//! An entry is all that an acknowledged submission needs to become the node's
//! facts, whichever server does it. Facts of an ordinary size stand in the
//! entry itself, so that taking a submission costs one transaction; larger
//! ones are a blob that the entry refers to.

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
    /// Who took it, and so works on it first.
    pub server: ServerId,
    pub payload: Payload,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Payload {
    Inline(Map<String, Value>),
    /// Too large for a value: a blob, referred to by [`queue_referrer`].
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

/// Who refers to the blob of a queued submission.
pub(crate) fn queue_referrer(node: &NodeName) -> String {
    keys::fact_queue(node)
}
