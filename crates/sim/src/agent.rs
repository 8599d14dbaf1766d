//! A simulated agent: the run queue, the worker, the spool and the delivery of a
//! real one, over a bad network, across any number of lives.

mod simulated_run;
mod stream;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_agent::rehearsal::Rehearsal;
use bunraku_agent::{Methods, RunSettings, Windows};
use bunraku_compile::targets::KnownTarget;
use bunraku_model::{FactSet, NodeName, NodeRunId};
use bunraku_wire::api::{Cause, RunRequest, SubmissionOrder};
use serde_json::json;
use uuid::Uuid;

use crate::servers::Servers;
use crate::strike::KillSwitch;
use crate::{Checker, CueChecker};
use simulated_run::{EventDelivery, SimulatedRuns};

/// An agent, for as long as the fleet exists.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) node: NodeName,
    pub(crate) session: Uuid,
    pub(crate) directory: PathBuf,
    pub(crate) servers: Servers,
    pub(crate) checker: Checker,
    pub(crate) cues: CueChecker,
    /// Fires triggers, and has resources that fail.
    pub(crate) has_cues: bool,
    /// All nodes of the fleet.
    pub(crate) peers: Arc<[NodeName]>,
    /// The time between two looks for work.
    pub(crate) pace: Duration,
    /// The step at which this agent is killed, if not by chance.
    pub(crate) strike: Arc<KillSwitch>,
    /// The planted bug, for the test of the checker.
    pub(crate) bug: Option<crate::bug::Bug>,
    /// The current life.
    pub(crate) life: Arc<Mutex<Option<Rehearsal>>>,
}

impl Agent {
    /// Runs its rounds, then continues forever. Reports when the rounds are finished.
    pub(crate) async fn live(self, rounds: usize, over: tokio::sync::mpsc::UnboundedSender<()>) {
        let mut left = rounds;
        let (mut version, mut settled) = (0, false);
        loop {
            let life = self.new_life();
            let postman = EventDelivery(self.clone());
            let died = tokio::select! {
                biased;
                died = self.wait_for_death() => died,
                () = life.work(&postman) => unreachable!("it works for ever"),
                () = self.hold_stream(&life) => unreachable!("for ever"),
                () = self.rounds(&life, &mut left, &mut version, &mut settled, &over) => unreachable!("for ever"),
            };
            *self.life.lock().unwrap_or_else(PoisonError::into_inner) = None;
            drop(life);
            if died == AgentDeath::Machine {
                self.checker.lost(&self.node);
                // Reported once: the other agents may still have rounds to do.
                if left > 0 {
                    let _ = over.send(());
                }
                return;
            }
            tokio::time::sleep(self.servers.chance.up_to(Duration::from_secs(2))).await;
        }
    }

    fn new_life(&self) -> Rehearsal {
        let method = Arc::new(SimulatedRuns(self.clone()));
        let methods = Methods {
            engine: method.clone(),
            configured: method,
        };
        let settings = RunSettings {
            noop: false,
            windows: Windows::default(),
            timeout: None,
        };
        let clock = self.servers.clock.clone();
        let life = Rehearsal::open(&self.directory, methods, settings, move || clock.now());
        let life = life.expect("its directory is as its last life left it");
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some(life.clone());
        life
    }

    async fn wait_for_death(&self) -> AgentDeath {
        let chance = &self.servers.chance;
        let by_chance = async {
            if !self.servers.faults() || !chance.happens(50) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(chance.up_to(Duration::from_secs(15))).await;
            // The faults may have ended meanwhile: then no agent dies any more.
            if !self.servers.faults() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = by_chance => if chance.happens(10) { AgentDeath::Machine } else { AgentDeath::Process },
            () = self.strike.wait_for_strike() => AgentDeath::Process,
        }
    }

    /// Submits facts and applies its target, a number of times. After that, only
    /// applies its target.
    async fn rounds(
        &self,
        life: &Rehearsal,
        left: &mut usize,
        version: &mut u64,
        settled: &mut bool,
        over: &tokio::sync::mpsc::UnboundedSender<()>,
    ) {
        let chance = &self.servers.chance;
        while *left > 0 {
            tokio::time::sleep(chance.up_to(Duration::from_secs(4))).await;
            if chance.happens(60) {
                *version += 1;
            }
            self.submit(*version, settled).await;
            *left -= 1;
            if *left == 0 {
                let _ = over.send(());
            }
            self.check_target(life).await;
        }
        loop {
            tokio::time::sleep(self.pace).await;
            self.check_target(life).await;
        }
    }

    /// Submits until a server has the facts: again and again, each time as a new submission.
    async fn submit(&self, version: u64, settled: &mut bool) {
        // If it is interrupted in the middle, nobody knows whether the facts were accepted.
        while !self.submit_once(version, std::mem::take(settled)).await {
            let wait = self.servers.chance.up_to(Duration::from_secs(2));
            tokio::time::sleep(wait).await;
        }
        *settled = true;
    }

    /// Submits once. Returns true if it was acknowledged.
    async fn submit_once(&self, version: u64, settled: bool) -> bool {
        let number = self.checker.record_facts(&self.node, version);
        let order = SubmissionOrder {
            session: self.session,
            number,
            settled,
        };
        let facts = json!({"version": version, "system_uptime": {"seconds": number}});
        let facts = FactSet::try_from(facts).expect("an object");
        let node = self.node.clone();
        let taken = self.servers.ask(move |services, answer| {
            let (node, facts) = (node.clone(), facts.clone());
            async move {
                // A silent server gives no answer; that is not a refusal.
                if (services.facts.submit(&node, &facts, Some(order)).await).is_ok() {
                    answer.give(());
                }
            }
        });
        let is_taken = taken.await.is_some();
        if is_taken {
            self.checker.acknowledged(&self.node, number);
        }
        is_taken
    }

    /// Fetches the target, and requests a run if it has not been applied yet.
    async fn check_target(&self, life: &Rehearsal) {
        let Some(known) = self.target().await else {
            return;
        };
        let done = self.checker.applied_catalog(&self.node);
        if done == Some(known.stored.target.catalog) || !life.is_at_rest() {
            return;
        }
        let chance = &self.servers.chance;
        let request = RunRequest::new(
            NodeRunId(Uuid::from_u64_pair(chance.number(), chance.number())),
            vec![Cause::Release {
                release: known.stored.target.release,
            }],
        );
        let id = request.id;
        if life.submit(request) {
            self.checker.record_request(&self.node, id);
        }
    }

    /// Returns this node's target according to a server, if one answers.
    pub(crate) async fn target(&self) -> Option<Arc<KnownTarget>> {
        let (node, checker) = (self.node.clone(), self.checker.clone());
        let asked = self.servers.ask(move |services, answer| {
            let (node, checker) = (node.clone(), checker.clone());
            async move {
                let Ok(Some(known)) = services.board.get(&node).await else {
                    return;
                };
                // Each one once: checking a release of many nodes takes long.
                if !checker.has_seen(&node, &known.entity_tag) {
                    record_target(&checker, &services.releases, &node, &known).await;
                }
                answer.give(known);
            }
        });
        asked.await
    }

    /// Returns true if nothing waits here and a server has all its reports.
    pub(crate) fn is_at_rest(&self) -> bool {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        life.as_ref().is_some_and(Rehearsal::is_at_rest)
    }
}

/// Reports a target that a node received to the checker.
pub(crate) async fn record_target(
    checker: &Checker,
    releases: &bunraku_compile::Releases,
    node: &NodeName,
    known: &KnownTarget,
) {
    let target = &known.stored.target;
    let map = match checker.release(target.release) {
        Some(map) => map,
        None => {
            let release = releases.show(&target.environment, Some(target.release));
            let release = release.await.expect("the release of a target is there");
            let entries = release.map.into_iter();
            let map = entries.map(|entry| (entry.node, entry.catalog)).collect();
            checker.record_release(target.release, map)
        }
    };
    let named = map.get(node) == Some(&target.catalog);
    checker.target(node, named, &known.entity_tag);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentDeath {
    /// The agent is killed; its disk stays.
    Process,
    /// The machine is permanently lost.
    Machine,
}
