//! The outcome of each node's newest run, beside the node's status.
//!
//! Lists of nodes read it without reading any report. It stays when the report is deleted.

use bunraku_store::{Store, Transaction};
use bunraku_wire::api::{FailedResource, LastRun};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::head::ReportHead;
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// The number of characters kept of a name or a message.
const LONGEST: usize = 300;

/// The outcome as stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredLastRun {
    #[serde(flatten)]
    pub(crate) last_run: LastRun,
    /// The time when the first event of the report reached a server. It decides which run is newer.
    first_received: Timestamp,
}

/// Notes the outcome of a finished run in the transaction that stores its last event, unless a
/// newer run has finished already.
pub(super) async fn note(
    store: &dyn Store,
    transaction: Transaction,
    head: &ReportHead,
) -> Result<Transaction, ServiceError> {
    let key = keys::node_last_run(&head.node);
    let known: Option<Versioned<StoredLastRun>> = document::read(store, &key).await?;
    let entry = known.as_ref().map(|known| &known.entry);
    let transaction = transaction.when_unchanged(&key, entry);
    let Some(next) = outcome(head) else {
        return Ok(transaction);
    };
    let is_newer = known.as_ref().is_none_or(|known| {
        let known = &known.document;
        (known.first_received, known.last_run.run) <= (next.first_received, next.last_run.run)
    });
    Ok(if is_newer {
        transaction.put(key, document::encode(&next))
    } else {
        transaction
    })
}

/// Returns the outcome of a finished run.
fn outcome(head: &ReportHead) -> Option<StoredLastRun> {
    let finished = head.finished.as_ref()?;
    let failure = head.failures.first().map(|failure| FailedResource {
        resource: shortened(&failure.resource),
        message: failure.message.as_deref().map(shortened),
    });
    Some(StoredLastRun {
        last_run: LastRun {
            run: head.run,
            ending: finished.ending,
            mode: head.started.mode,
            at: head.last_received,
            counts: head.counts,
            release: head.started.release,
            failure,
            message: finished.message.as_deref().map(shortened),
        },
        first_received: head.first_received,
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}
