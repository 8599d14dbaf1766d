//! Registers: compare-and-swaps in the store, writes and reads through the API.
//!
//! The reason why a node is out of service is a register that every server writes
//! and reads: one reason replaces the other, by a compare-and-swap of the node's
//! whole record inside the server.

use bunraku_model::Administration;
use bunraku_store::{Compare, StoreError, Transaction, TransactionOutcome};
use bunraku_wire::api::{DisableRequest, NodeSummary};
use bunraku_wire::client::ConditionalReply;
use bunraku_wire::endpoints::{DisableNode, Endpoint, ShowNode};
use rand::RngExt;

use super::{Worker, outcome_of};
use crate::history::{Call, CallOutcome, Server, Value};
use crate::setup::REGISTERS;

pub(crate) const KEYS: [&str; 2] = ["faults/a", "faults/b"];

impl Worker {
    pub(super) async fn swap(&mut self) {
        let key = KEYS[self.random.random_range(0..KEYS.len())];
        let Some(from) = self.read_store(key).await else {
            return;
        };
        let to = self.unique();
        let compare = match &from {
            None => Compare::Absent(key.to_owned()),
            Some(value) => Compare::Value(key.to_owned(), value.clone().into_bytes().into()),
        };
        let transaction = Transaction::new().when(compare).put(key, to.clone());
        let begun = self.recorder.now();
        let outcome = match self.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(_)) => CallOutcome::Done,
            Ok(TransactionOutcome::Refused(_)) => CallOutcome::Refused,
            Err(StoreError::OutcomeUnknown(_)) => CallOutcome::Unknown,
            // The store reports that nothing was done: nothing to learn from.
            Err(StoreError::Unavailable(_)) => return,
            Err(_) => CallOutcome::Unknown,
        };
        let key = key.to_owned();
        self.record(None, begun, Call::Swap { key, from, to }, outcome);
    }

    /// Returns the store's value, or `None` if it does not answer.
    pub(crate) async fn read_store(&mut self, key: &str) -> Option<Value> {
        let begun = self.recorder.now();
        let entry = self.store.get(key).await.ok()?;
        let value = entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
        let call = Call::Read {
            key: key.to_owned(),
            value: value.clone(),
        };
        self.record(None, begun, call, CallOutcome::Done);
        Some(value)
    }

    pub(super) async fn write_or_read(&mut self) {
        let server = self.any_server();
        let node = REGISTERS[self.random.random_range(0..REGISTERS.len())];
        if self.random.random_bool(0.5) {
            self.read_node(server, node).await;
            return;
        }
        let value = self.unique();
        let request = DisableRequest {
            reason: value.clone(),
        };
        let name = node.parse().expect("a name");
        let sent = self.request(server);
        let reply = sent.client.call_with(DisableNode.at(&name), &request);
        let outcome = match reply.await {
            Ok(_) => CallOutcome::Done,
            Err(error) => outcome_of(&error),
        };
        let key = node.to_owned();
        self.record_reply(sent, Call::Write { key, value }, outcome);
    }

    /// Reads the node's register. Returns true if the server answered.
    pub(crate) async fn read_node(&mut self, server: Server, node: &str) -> bool {
        let begun = self.recorder.now();
        let name = node.parse().expect("a name");
        let at = ShowNode.at(&name);
        let reply = self.servers[server].get_if_changed::<NodeSummary>(at.as_str(), None);
        // An answer marked as stale, because no majority answers, promises nothing.
        let Ok(ConditionalReply::Changed {
            value: summary,
            old: false,
            ..
        }) = reply.await
        else {
            return false;
        };
        let value = match summary.status.administration {
            Administration::Enabled { .. } => None,
            Administration::Disabled { reason, .. } => Some(reason),
        };
        let key = node.to_owned();
        self.record(
            Some(server),
            begun,
            Call::Read { key, value },
            CallOutcome::Done,
        );
        true
    }
}
