//! Ordered runs that rules ask for: stored in the transaction that reacts to the event.
//!
//! The service of ordered runs plans and starts them (`orchestrate`). The id of the run is known
//! from the announcement on, so a server that dies in between cannot start it twice.

use bunraku_model::{EnvironmentName, NodeName, RunId, TriggerName};
use bunraku_store::Transaction;
use bunraku_wire::api::TriggerCause;
use bunraku_wire::api::reactors::ReactorRun;
use serde::{Deserialize, Serialize};

use bunraku_control::{document, keys};

/// An ordered run to be planned and started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AnnouncedRun {
    pub id: RunId,
    pub environment: EnvironmentName,
    /// The name in the history.
    pub trigger: TriggerName,
    pub by: String,
    pub run: ReactorRun,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub causes: Vec<TriggerCause>,
}

impl AnnouncedRun {
    /// Adds the announcement to a transaction.
    pub fn put_in(&self, transaction: Transaction) -> Transaction {
        transaction.put(keys::reactor_run(self.id), document::encode(self))
    }

    pub fn reason(&self) -> Option<&String> {
        self.causes.first().and_then(|cause| cause.reason.as_ref())
    }
}
