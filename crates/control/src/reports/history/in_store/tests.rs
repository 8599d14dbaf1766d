//! The contract of history on the state store.
//!
//! Absent are the cases in which appends overlap or stay unacknowledged, because an append is part
//! of the transaction that compares the head; and two records with one id and one time, which share
//! a key here.

use std::sync::Arc;

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::blobs::StoreBlobs;
use bunraku_store::contract::history::HistorySubject;
use bunraku_store::history::HistoryRecord;
use bunraku_store::testing::MemoryStore;
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::{EventCounts, RunEnding, RunFinished, RunMode, RunStarted};
use bytes::Bytes;
use jiff::Timestamp;

use super::super::super::head::ReportHead;
use super::StoreHistory;
use crate::{document, keys};

/// Writes the head as the report service does.
fn acknowledge(transaction: Transaction, record: &HistoryRecord, end: u64) -> (Transaction, Bytes) {
    let node = NodeName::new(&record.id.owner).expect("a name");
    let run: NodeRunId = record.id.id.parse().expect("a run");
    let endings = [
        RunEnding::Succeeded,
        RunEnding::Failed,
        RunEnding::Interrupted,
    ];
    let ending = endings.into_iter().find(|it| it.as_str() == record.status);
    let head = ReportHead {
        node: node.clone(),
        run,
        started: RunStarted::new(Timestamp::UNIX_EPOCH, RunMode::Enforce, "engine"),
        finished: ending.map(|ending| RunFinished::new(Timestamp::UNIX_EPOCH, ending)),
        counts: EventCounts::default(),
        failures: Vec::new(),
        omitted: 0,
        next: end,
        first_received: record.at,
        last_received: record.at,
        bytes: 0,
        content: None,
        packed: false,
        small: false,
        elsewhere: false,
        newest_batch: None,
        repeats: None,
    };
    let bytes = document::encode(&head);
    (
        transaction.put(keys::report(&node, run), bytes.clone()),
        bytes,
    )
}

async fn make_history() -> HistorySubject {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let blobs = Arc::new(StoreBlobs::in_store(store.clone(), Default::default()));
    HistorySubject {
        history: Arc::new(StoreHistory::new(store.clone(), blobs)),
        store,
        acknowledge,
        drops_events: false,
        keep: Arc::new(()),
    }
}

bunraku_store::history_contract_suite!(@cases make_history:
    an_append_is_read_back
    the_same_append_again_changes_nothing
    lists_are_newest_first_and_filtered
    pages_join_without_gap_or_overlap
    removing_a_record_or_an_owner_leaves_the_others
    dropping_removes_old_periods_and_nothing_else
    times_far_apart_are_kept_in_order
    a_report_of_many_chunks_is_read_from_any_number
    checking_changes_nothing
);
