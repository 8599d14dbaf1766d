//! A simulated agent: the run queue, the worker, the spool and the delivery of
//! a real one, over a bad network, through any number of lives.

mod carry_out;

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

use crate::Checker;
use crate::servers::Servers;
use crate::strike::Strike;
use carry_out::{Postman, SimulatedRuns};

/// An agent, as long as the fleet lives.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) node: NodeName,
    pub(crate) session: Uuid,
    pub(crate) directory: PathBuf,
    pub(crate) servers: Servers,
    pub(crate) checker: Checker,
    /// Between two looks at what there is to do.
    pub(crate) pace: Duration,
    /// When this agent is killed, if not by chance.
    pub(crate) strike: Arc<Strike>,
    /// The planted bug, for the test of the checker.
    pub(crate) bug: Option<crate::bug::Bug>,
    /// The life that is on now.
    pub(crate) life: Arc<Mutex<Option<Rehearsal>>>,
}

impl Agent {
    /// Goes through its rounds, and then on for ever; says when the rounds are over.
    pub(crate) async fn live(self, rounds: usize, over: tokio::sync::mpsc::UnboundedSender<()>) {
        let mut left = rounds;
        let (mut version, mut settled) = (0, false);
        loop {
            let life = self.new_life();
            let postman = Postman(self.clone());
            let died = tokio::select! {
                biased;
                died = self.death() => died,
                () = life.work(&postman) => unreachable!("it works for ever"),
                () = self.rounds(&life, &mut left, &mut version, &mut settled, &over) => unreachable!("for ever"),
            };
            *self.life.lock().unwrap_or_else(PoisonError::into_inner) = None;
            drop(life);
            if died == Death::Machine {
                self.checker.lost(&self.node);
                // Said once: the others may still have rounds to go.
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

    async fn death(&self) -> Death {
        let chance = &self.servers.chance;
        let by_chance = async {
            if !self.servers.faults() || !chance.happens(50) {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(chance.up_to(Duration::from_secs(15))).await;
            // Faults may have ended meanwhile: then nobody dies any more.
            if !self.servers.faults() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = by_chance => if chance.happens(10) { Death::Machine } else { Death::Process },
            () = self.strike.struck() => Death::Process,
        }
    }

    /// Submits facts and does what it is told to, some times over; then it
    /// only does what it is told to.
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
            self.look_at_target(life).await;
        }
        loop {
            tokio::time::sleep(self.pace).await;
            self.look_at_target(life).await;
        }
    }

    /// Until a server has them: again and again, each time as a new submission.
    async fn submit(&self, version: u64, settled: &mut bool) {
        // Cut off in the middle, nobody knows whether it was taken.
        while !self.submit_once(version, std::mem::take(settled)).await {
            let wait = self.servers.chance.up_to(Duration::from_secs(2));
            tokio::time::sleep(wait).await;
        }
        *settled = true;
    }

    /// Whether it was acknowledged.
    async fn submit_once(&self, version: u64, settled: bool) -> bool {
        let number = self.checker.says(&self.node, version);
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
                // A silent server is one that says nothing, not one that says no.
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

    /// Asks what to do, and asks for a run if that was not done yet.
    async fn look_at_target(&self, life: &Rehearsal) {
        let Some(known) = self.target().await else {
            return;
        };
        let done = self.checker.carried_out(&self.node);
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
            self.checker.asked(&self.node, id);
        }
    }

    /// What a server says that this node is to look like, if one answers.
    pub(crate) async fn target(&self) -> Option<Arc<KnownTarget>> {
        let (node, checker) = (self.node.clone(), self.checker.clone());
        let asked = self.servers.ask(move |services, answer| {
            let (node, checker) = (node.clone(), checker.clone());
            async move {
                let Ok(Some(known)) = services.board.get(&node).await else {
                    return;
                };
                // Each one once: a release of many nodes takes long to look through.
                if !checker.has_seen(&node, &known.entity_tag) {
                    see_target(&checker, &services.releases, &node, &known).await;
                }
                answer.give(known);
            }
        });
        asked.await
    }

    /// Nothing waits here and a server has all its reports.
    pub(crate) fn is_at_rest(&self) -> bool {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        life.as_ref().is_some_and(Rehearsal::is_at_rest)
    }
}

/// Tells the checker of a target that a node was given.
pub(crate) async fn see_target(
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
            checker.keep_release(target.release, map)
        }
    };
    let named = map.get(node) == Some(&target.catalog);
    checker.target(node, named, &known.entity_tag);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The agent is killed; its disk stays.
    Process,
    /// The machine is gone for ever.
    Machine,
}
