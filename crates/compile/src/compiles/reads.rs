//! What a node's code asked about other nodes in its newest compile.
//!
//! Stored with the outcome, after failures too: a changed answer may repair the
//! failure.

use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::{KeyValue, Transaction};
use bunraku_wire::api::CompileReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Compiles;
use super::claim::Claim;
use super::queue::QueueEntry;
use crate::code_questions::AskedQuestion;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// After this long without a compile because of answers, the count of rounds starts again.
pub(super) const CALM: Duration = Duration::from_secs(15 * 60);

/// The questions of one node, with the digests of the answers that it received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CompileReads {
    pub(super) asked: Vec<AskedQuestion>,
    /// Number of compiles in a row that had no other reason than changed answers.
    pub(super) rounds: u32,
    pub(super) compiled_at: Timestamp,
    /// An answer is outdated, and a compile was requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_requested: bool,
    /// Set if changed answers no longer lead to a compile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<ReadsStop>,
}

/// The end of compiles that cause each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReadsStop {
    pub(super) at: Timestamp,
    /// The nodes that feed each other, in order; the first is the node itself.
    pub(super) circle: Vec<NodeName>,
}

impl Compiles {
    /// Adds the questions of a compile to the transaction that stores its outcome.
    pub(super) async fn reads_in(
        &self,
        transaction: Transaction,
        claim: &Claim,
        asked: &[AskedQuestion],
        request: Option<&KeyValue>,
    ) -> Result<Transaction, ServiceError> {
        let key = keys::compile_reads(&claim.node);
        let before = document::read::<CompileReads>(&*self.inner.store, &key).await?;
        if asked.is_empty() {
            return Ok(match before {
                Some(before) => transaction
                    .when_unchanged(&key, Some(&before.entry))
                    .delete(key),
                None => transaction,
            });
        }
        let now = self.inner.clock.now();
        let entry = request.map(document::decode::<QueueEntry>).transpose()?;
        let is_because_of_answers =
            entry.is_some_and(|entry| entry.reasons == [CompileReason::Answers]);
        let recent = before.as_ref().map(|before| &before.document);
        let recent = recent.filter(|before| is_within(before.compiled_at, now, CALM));
        let rounds = if is_because_of_answers {
            recent.map_or(0, |before| before.rounds) + 1
        } else {
            0
        };
        let reads = CompileReads {
            asked: asked.to_vec(),
            rounds,
            compiled_at: now,
            is_requested: false,
            stopped: None,
        };
        Ok(transaction
            .when_unchanged(&key, before.as_ref().map(|before| &before.entry))
            .put(key, document::encode(&reads)))
    }
}

/// Returns whether a time is at most this long before another.
pub(super) fn is_within(time: Timestamp, now: Timestamp, length: Duration) -> bool {
    now.duration_since(time).unsigned_abs() < length
}
