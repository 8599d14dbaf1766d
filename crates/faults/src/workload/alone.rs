//! A client of the server with the embedded store: writes and reads one register.

use std::time::{Duration, Instant};

use bunraku_model::Administration;
use bunraku_wire::Client;
use bunraku_wire::api::{DisableRequest, NodeSummary};
use bunraku_wire::endpoints::{DisableNode, Endpoint, ShowNode};
use tokio_util::sync::CancellationToken;

use super::{Recorder, outcome_of};
use crate::alone::REGISTER;
use crate::history::{Call, CallOutcome, Micros, Operation};
use crate::setup::{PATIENCE, SiteError};

/// The client's number in the history: none of the cluster's clients has it.
const NUMBER: usize = 100;
const PAUSE: Duration = Duration::from_millis(30);

#[derive(Clone)]
pub(crate) struct AloneWorker {
    client: Client,
    recorder: Recorder,
    count: u64,
}

impl AloneWorker {
    pub(crate) fn new(client: Client, recorder: Recorder) -> Self {
        Self {
            client,
            recorder,
            count: 0,
        }
    }

    /// Works until stopped. Returns itself for the last words.
    pub(crate) async fn work(mut self, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            self.write().await;
            self.read().await;
            tokio::time::sleep(PAUSE).await;
        }
        self
    }

    /// Writes and reads once more, now that everything is repaired.
    pub(crate) async fn last_words(&mut self) -> Result<(), SiteError> {
        let deadline = Instant::now() + PATIENCE;
        while !(self.write().await && self.read().await) {
            if Instant::now() > deadline {
                return Err(SiteError::Late(
                    "the embedded store does not write again after its disk was full".to_owned(),
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Returns true if the write was acknowledged.
    async fn write(&mut self) -> bool {
        self.count += 1;
        let value = format!("alone-{}", self.count);
        let request = DisableRequest {
            reason: value.clone(),
        };
        let begun = self.recorder.now();
        let name = REGISTER.parse().expect("a name");
        let reply = self.client.call_with(DisableNode.at(&name), &request).await;
        let outcome = match reply {
            Ok(_) => CallOutcome::Done,
            Err(error) => outcome_of(&error),
        };
        let key = REGISTER.to_owned();
        self.record(begun, Call::Write { key, value }, outcome);
        outcome == CallOutcome::Done
    }

    /// Returns true if the server answered.
    async fn read(&self) -> bool {
        let begun = self.recorder.now();
        let name = REGISTER.parse().expect("a name");
        let Ok(summary) = self.client.call(ShowNode.at(&name)).await else {
            return false;
        };
        let summary: NodeSummary = summary;
        let value = match summary.status.administration {
            Administration::Enabled { .. } => None,
            Administration::Disabled { reason, .. } => Some(reason),
        };
        let key = REGISTER.to_owned();
        self.record(begun, Call::Read { key, value }, CallOutcome::Done);
        true
    }

    fn record(&self, begun: Micros, call: Call, outcome: CallOutcome) {
        let operation = Operation {
            client: NUMBER,
            server: None,
            begun,
            ended: self.recorder.now(),
            call,
            outcome,
            request: None,
        };
        self.recorder.recorded().0.push(operation);
    }
}
