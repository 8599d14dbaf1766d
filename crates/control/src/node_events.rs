//! Recording of node events, in the transaction in which they happen.
//!
//! Reports and presence call a [`NodeEventRecorder`] while they build their own
//! transaction. The record is stored if and only if the event is: no event is
//! lost or duplicated, whenever a server dies.
//!
//! Absent here: which events anyone asks for (`reactors`).

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::Transaction;
use bunraku_wire::api::{NumberedEvent, RunStarted};
use jiff::Timestamp;

/// New events of a node run.
#[derive(Clone, Copy, Debug)]
pub struct RunEvents<'a> {
    pub node: &'a NodeName,
    pub run: NodeRunId,
    pub started: &'a RunStarted,
    pub events: &'a [NumberedEvent],
}

/// The loss of a node's connection.
#[derive(Clone, Copy, Debug)]
pub struct NodeLoss<'a> {
    pub node: &'a NodeName,
    pub since: Timestamp,
    pub reason: &'a str,
}

/// Adds records of events to the transactions that store them.
pub trait NodeEventRecorder: Send + Sync + 'static {
    /// Records events of a node run.
    fn report_events(&self, transaction: Transaction, events: &RunEvents<'_>) -> Transaction;

    /// Records that a node joined.
    fn node_joined(&self, transaction: Transaction, node: &NodeName) -> Transaction;

    /// Records the loss of a node's connection.
    fn node_lost(&self, transaction: Transaction, loss: &NodeLoss<'_>) -> Transaction;
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl NodeEventRecorder for NoRecorder {
    fn report_events(&self, transaction: Transaction, _: &RunEvents<'_>) -> Transaction {
        transaction
    }

    fn node_joined(&self, transaction: Transaction, _: &NodeName) -> Transaction {
        transaction
    }

    fn node_lost(&self, transaction: Transaction, _: &NodeLoss<'_>) -> Transaction {
        transaction
    }
}
