//! Things that are done once: all clients want to do the same one.

use std::time::Duration;

use bunraku_model::ClaimId;
use bunraku_wire::api::once::{ClaimOnce, ClaimReply, DefineOnce, FinishClaim};
use bunraku_wire::endpoints::{ClaimOnceTask, DefineOnceTask, Endpoint, FinishOnceClaim};
use rand::RngExt;

use super::{Worker, outcome_of};
use crate::history::{Call, CallOutcome, Server};

const LEASE_SECONDS: u64 = 3;
/// The interval at which a new thing to do comes up.
const EVERY: u64 = 1_500_000;

impl Worker {
    pub(super) async fn do_once(&mut self) {
        let server = self.any_server();
        let app = format!("thing-{}", self.recorder.now() / EVERY);
        if !self.define(server, &app).await {
            return;
        }
        let Some(token) = self.claim(server, &app).await else {
            return;
        };
        let work = Duration::from_millis(self.random.random_range(10..300));
        tokio::time::sleep(work).await;
        // Some clients die in the middle: then another one does it.
        if self.random.random_bool(0.85) {
            let server = self.any_server();
            self.finish(server, &app, token).await;
        }
    }

    async fn define(&mut self, server: Server, app: &str) -> bool {
        let definition = serde_json::json!({"command": ["true"], "retry": "always"});
        let serde_json::Value::Object(definition) = definition else {
            return false;
        };
        let name = app.parse().expect("a name");
        let request = DefineOnce { definition };
        let sent = self.request(server);
        let reply = sent.client.call_with(DefineOnceTask.at(&name), &request);
        let outcome = match reply.await {
            Ok(_) => CallOutcome::Done,
            Err(error) => outcome_of(&error),
        };
        let app = app.to_owned();
        self.record_reply(sent, Call::Define { app }, outcome);
        outcome == CallOutcome::Done
    }

    async fn claim(&mut self, server: Server, app: &str) -> Option<u64> {
        let request = ClaimOnce {
            claim: ClaimId(uuid::Uuid::now_v7()),
            lease_seconds: LEASE_SECONDS,
            retry: true,
        };
        let name = app.parse().expect("a name");
        let sent = self.request(server);
        let reply = sent.client.call_with(ClaimOnceTask.at(&name), &request);
        let (token, outcome) = match reply.await {
            Ok(ClaimReply::Granted { attempt, .. }) => (Some(attempt.token), CallOutcome::Done),
            Ok(ClaimReply::Refused { .. }) => (None, CallOutcome::Refused),
            Err(error) => (None, outcome_of(&error)),
        };
        let call = Call::Claim {
            app: app.to_owned(),
            lease: LEASE_SECONDS * 1_000_000,
            token,
        };
        self.record_reply(sent, call, outcome);
        token
    }

    async fn finish(&mut self, server: Server, app: &str, token: u64) {
        let request = FinishClaim {
            exit_code: 0,
            log: String::new(),
        };
        let name = app.parse().expect("a name");
        let at = FinishOnceClaim.at((&name, &token));
        let sent = self.request(server);
        let reply = sent.client.call_with(at, &request);
        let outcome = match reply.await {
            Ok(_) => CallOutcome::Done,
            Err(error) => outcome_of(&error),
        };
        let app = app.to_owned();
        self.record_reply(sent, Call::Finish { app, token }, outcome);
    }
}
