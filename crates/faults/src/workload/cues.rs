//! Triggers and ordered runs, which make real agents work.

use bunraku_model::{FiringId, NodeName};
use bunraku_plan::run::{NewRun, OrderedRunSubject, RunOptions};
use bunraku_plan::{Inventory, PlanOptions, RunPlan, site_file};
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use bunraku_wire::endpoints::{self, CreateRun, Endpoint};
use rand::RngExt;

use super::{Worker, outcome_of};
use crate::history::{Call, CallOutcome};
use crate::setup::AGENTS;

/// The order of the agents in an ordered run.
const SITE: &str = "
applications:
  chain:
    components:
      first: {node: n1, produces: [one]}
      second: {node: n2, consumes: [one], produces: [two]}
      third: {node: n3, consumes: [two]}
";

/// Returns the same order as pairs: the first of each comes before the second.
pub(crate) fn order() -> Vec<(String, String)> {
    let pairs = AGENTS.iter().zip(AGENTS.iter().skip(1));
    pairs
        .map(|(one, other)| ((*one).to_owned(), (*other).to_owned()))
        .collect()
}

fn plan() -> RunPlan {
    let nodes = AGENTS.map(|name| NodeName::new(name).expect("a name"));
    let inventory = Inventory::of(nodes.to_vec());
    let site = site_file("chain.yaml", SITE, &inventory).expect("a site");
    bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan")
}

impl Worker {
    pub(super) async fn fire(&mut self) {
        let server = self.any_server();
        // A unique name, so that reports about it can be told apart.
        let trigger = self.unique();
        let id = FiringId(uuid::Uuid::now_v7());
        let first = self.random.random_range(0..AGENTS.len());
        let hosts: Vec<String> = AGENTS[first..].iter().map(|it| (*it).to_owned()).collect();
        let request = FireTrigger {
            id,
            hosts: hosts
                .iter()
                .map(|host| NodeName::new(host.clone()).expect("a name"))
                .collect(),
            query: None,
            ttl: None,
            reason: None,
            deadline_seconds: Some(3_600),
            causes: Vec::new(),
            changed: false,
        };
        let name = trigger.parse().expect("a name");
        let at = endpoints::FireTrigger.at(&name);
        let sent = self.request(server);
        let reply = sent.client.call_with(at, &request);
        let outcome = match reply.await {
            Ok(FireReply::Fired { .. }) => CallOutcome::Done,
            Ok(_) => CallOutcome::Refused,
            Err(error) => outcome_of(&error),
        };
        let firing = id.0.to_string();
        let call = Call::Fire {
            trigger,
            firing,
            hosts,
        };
        self.record_reply(sent, call, outcome);
    }

    pub(super) async fn start_run(&mut self) {
        let server = self.any_server();
        let options = RunOptions {
            // No node is permanently lost here.
            lost_after_seconds: 3_600,
            start_timeout_seconds: 3_600,
            ..RunOptions::default()
        };
        let subject = OrderedRunSubject::Configured { environment: None };
        let new = NewRun::of(plan().with_options(options, subject));
        let sent = self.request(server);
        let reply = sent.client.call_with(CreateRun, &new);
        let (run, outcome) = match reply.await {
            Ok(record) => (Some(record.id.to_string()), CallOutcome::Done),
            Err(error) => (None, outcome_of(&error)),
        };
        self.record_reply(sent, Call::StartRun { run }, outcome);
    }
}
