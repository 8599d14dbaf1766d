//! Triggers that agents fire, the reactor of the fleet, and its ordered runs.

use std::collections::BTreeMap;

use bunraku_control::{document, keys};
use bunraku_cues::CueCaller;
use bunraku_model::{Connection, FiringId, NodeName, Role, TriggerName, default_environment};
use bunraku_plan::run::NewRun;
use bunraku_plan::{Inventory, PlanOptions, plan_site, site_file};
use bunraku_store::Range;
use bunraku_wire::api::Cause;
use bunraku_wire::api::reactors::{Reactor, ReactorEventKind, ReactorLimits};
use bunraku_wire::api::triggers::{FireReply, FireTrigger, TriggerNews};
use serde_json::json;
use uuid::Uuid;

use crate::Bug;
use crate::agent::Agent;
use crate::cue_checker::REACTION;
use crate::fleet::Fleet;

/// The trigger that agents fire at the end of a run.
const RIPPLE: &str = "ripple";
/// The percentage of runs that fire it.
const RIPPLES: usize = 30;
/// The number of requests before an agent gives up a firing.
const TRIES: usize = 4;
/// The most nodes in an ordered run.
const MOST_STEPS: usize = 4;

impl Agent {
    /// Fires a trigger at some node, as the last resource of a run does.
    pub(crate) async fn maybe_fire(&self, causes: &[Cause]) {
        let chance = &self.servers.chance;
        if !self.has_cues || !chance.happens(RIPPLES) {
            return;
        }
        let host = self.peers[chance.below(self.peers.len())].clone();
        let id = FiringId(Uuid::from_u64_pair(chance.number(), chance.number()));
        let request = FireTrigger {
            causes: causes.to_vec(),
            changed: chance.happens(80),
            ..FireTrigger::new(id, vec![host])
        };
        for _ in 0..TRIES {
            self.strike.step().await;
            if let Some(reply) = self.fire(&request).await {
                self.cues.acknowledged(id, reply);
                return;
            }
        }
    }

    async fn fire(&self, request: &FireTrigger) -> Option<FireReply> {
        let (node, request, cues) = (self.node.clone(), request.clone(), self.cues.clone());
        let forgets = self.bug == Some(Bug::FiringForgotten);
        let asked = self.servers.ask(move |services, answer| {
            let (node, request, cues) = (node.clone(), request.clone(), cues.clone());
            async move {
                cues.arrived(request.id);
                if forgets {
                    let (hosts, unknown) = (request.hosts, Vec::new());
                    return answer.give(FireReply::Fired { hosts, unknown });
                }
                let asker = CueCaller::new(&node, Role::Node);
                let trigger = TriggerName::new(RIPPLE).expect("a name");
                if let Ok(reply) = services.triggers.fire(&trigger, asker, &request).await {
                    answer.give(reply);
                }
            }
        });
        asked.await
    }
}

/// Returns the rule of the fleet: a failed resource starts a run on this node.
pub(crate) fn reactor(host: &NodeName) -> Reactor {
    Reactor {
        name: REACTION.to_owned(),
        file: "reactors/sim.yaml".to_owned(),
        line: 1,
        event: ReactorEventKind::Resource,
        matches: BTreeMap::from([("status".to_owned(), vec![json!("failed")])]),
        for_seconds: None,
        trigger: TriggerName::new(REACTION).expect("a name"),
        hosts: vec![host.to_string()],
        query: None,
        reason: None,
        ttl: None,
        deadline_seconds: None,
        limits: ReactorLimits::default(),
        run: None,
        labels: BTreeMap::new(),
    }
}

/// Returns a run over some nodes, each of which needs the one before it. With the bug, the plan
/// lacks the order.
pub(crate) fn ordered_run(nodes: &[NodeName], bug: Option<Bug>) -> NewRun {
    let components = nodes.iter().take(MOST_STEPS).enumerate();
    let components = components.map(|(number, node)| {
        let consumes = match number.checked_sub(1) {
            Some(before) if bug != Some(Bug::OrderIgnored) => format!(", consumes: [c{before}]"),
            _ => String::new(),
        };
        format!("part{number}: {{node: {node}, produces: [c{number}]{consumes}}}")
    });
    let components: Vec<String> = components.collect();
    let site = format!(
        "applications: {{shop: {{components: {{{}}}}}}}",
        components.join(", ")
    );
    let site = site_file("site.yaml", &site, &Inventory::default()).expect("a site");
    NewRun::of(plan_site(&site, &PlanOptions::default()).expect("a plan"))
}

impl Fleet {
    /// Returns true if a person would start an ordered run now. With faults, at any time. Without
    /// them, all of its steps shall begin: each node is connected and has a catalog to apply.
    pub(crate) async fn may_start_ordered_run(&self) -> bool {
        if self.plan.faults {
            return true;
        }
        for node in &self.names {
            if self.field(keys::target(node)).await.is_none() {
                return false;
            }
        }
        self.connections_are_true().await
    }

    pub(crate) async fn start_ordered_run_if_possible(&mut self) {
        if self.may_start_ordered_run().await {
            self.start_ordered_run().await;
        }
    }

    /// A person starts an ordered run over the first nodes.
    pub(crate) async fn start_ordered_run(&mut self) {
        self.ordered_runs_left -= 1;
        let new = ordered_run(&self.names, self.plan.bug);
        let asked = self.servers.ask(move |services, answer| {
            let new = new.clone();
            async move {
                let _ = services.orchestration.create(new, "sim").await;
                answer.give(());
            }
        });
        asked.await;
    }

    /// Returns true if no ordered run is open and no node is held for one.
    pub(crate) async fn ordered_runs_are_over(&self) -> bool {
        self.count(keys::OPEN_RUNS).await + self.count(keys::NODE_HOLDS).await == 0
    }

    /// Returns true if no event, firing or command waits, except for machines that are lost.
    pub(crate) async fn cues_are_done(&self) -> bool {
        let waiting =
            self.count(keys::REACTOR_EVENTS).await + self.count(keys::TRIGGER_ANNOUNCED).await;
        if waiting > 0 {
            return false;
        }
        let queues = self.keys(keys::TRIGGER_QUEUES).await;
        let queues = queues
            .iter()
            .filter_map(|key| keys::parse_trigger_queue(key));
        let commands = self.keys(keys::PENDING_COMMANDS).await;
        let commands = commands
            .iter()
            .filter_map(|key| keys::parse_pending_command(key));
        let mut nodes = queues.chain(commands.map(|(node, _)| node));
        nodes.all(|node| self.checker.is_lost(&node))
    }

    /// Returns true if exactly the nodes that live are connected, each to a server that lives and
    /// lists it.
    pub(crate) async fn connections_are_true(&self) -> bool {
        let mut listed = self.keys(keys::SERVER_SESSIONS).await;
        for node in &self.names {
            let key = keys::node_connection(node);
            let stored =
                document::read::<bunraku_control::presence::StoredConnection>(&*self.store, &key);
            let stored = stored.await.expect("memory answers");
            let stored = stored.map(|stored| stored.document.connection);
            let is_lost = self.checker.is_lost(node);
            let is_true = match stored {
                Some(Connection::Connected { server, .. }) => {
                    let known = listed.len();
                    listed.retain(|key| *key != keys::server_session(server, node));
                    let server = self.store.get(&keys::server(server)).await;
                    let lives = server.expect("memory answers").is_some();
                    !is_lost && lives && listed.len() + 1 == known
                }
                // A machine may be lost before it ever connected.
                _ => is_lost,
            };
            if !is_true {
                return false;
            }
        }
        listed.is_empty()
    }

    /// Checks triggers, reactors and ordered runs. `failed_runs` counts the reports with a
    /// failed resource.
    pub(crate) async fn check_cues(&self, failed_runs: usize) {
        self.cues.in_the_end(&self.checker);
        let ends = self.keys(keys::RUN_ENDS).await;
        for record in self.keys(keys::RUN_RECORDS).await {
            let run = keys::parse_run_record(&record).expect("a run");
            assert!(
                ends.contains(&keys::run_end(run)),
                "ordered run {run} never ends"
            );
        }
        if self.plan.cues && !self.checker.is_lost(&self.names[0]) {
            let trigger = TriggerName::new(REACTION).expect("a name");
            let triggers = self.services().triggers.clone();
            let events = triggers.history(Some(&trigger), usize::MAX).await;
            let events = events.expect("memory answers");
            let stopped = events
                .iter()
                .filter(|event| matches!(event.what, TriggerNews::Stopped { .. }));
            self.cues.check_reactions(failed_runs, stopped.count());
        }
    }

    /// Puts the reactor where a deploy would.
    pub(crate) async fn deploy_reactor(&self) {
        if let (true, Some(host)) = (self.plan.cues, self.names.first()) {
            let rules = serde_json::to_string(&[reactor(host)]).expect("plain data");
            let key = keys::environment_reactors(&default_environment());
            self.put(key, rules).await;
            let trigger = TriggerName::new(RIPPLE).expect("a name");
            let permitted = r#"{"fired_by": ["*"], "hosts": ["*"]}"#.to_owned();
            self.put(keys::trigger_limits(&trigger), permitted).await;
        }
    }

    async fn keys(&self, prefix: &str) -> Vec<String> {
        let page = self.store.range(Range::prefix(prefix)).await;
        let items = page.expect("memory answers").items;
        items.into_iter().map(|entry| entry.key).collect()
    }
}
