//! Recording of what happens to nodes, in the transaction in which it happens.
//!
//! Reports and presence call a [`NodeEventRecorder`] while they build their own
//! transaction. What it adds is stored exactly if the event itself is: no
//! event is lost or doubled, whichever server dies when.
//!
//! Absent here: which events anyone asks for (`reactors`).

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::Transaction;
use bunraku_wire::api::{NumberedEvent, RunStarted};
use jiff::Timestamp;

/// Adds records of events to the transactions that store them.
pub trait NodeEventRecorder: Send + Sync + 'static {
    /// Some events of a node run.
    fn report_events(
        &self,
        transaction: Transaction,
        node: &NodeName,
        run: NodeRunId,
        started: &RunStarted,
        events: &[NumberedEvent],
    ) -> Transaction;

    /// The loss of a node's connection.
    fn node_lost(
        &self,
        transaction: Transaction,
        node: &NodeName,
        since: Timestamp,
        reason: &str,
    ) -> Transaction;
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl NodeEventRecorder for NoRecorder {
    fn report_events(
        &self,
        transaction: Transaction,
        _: &NodeName,
        _: NodeRunId,
        _: &RunStarted,
        _: &[NumberedEvent],
    ) -> Transaction {
        transaction
    }

    fn node_lost(
        &self,
        transaction: Transaction,
        _: &NodeName,
        _: Timestamp,
        _: &str,
    ) -> Transaction {
        transaction
    }
}
