//! A simulated agent: the messages of a real one, over a bad network.

use std::time::Duration;

use bunraku_model::{FactSet, NodeName};
use bunraku_wire::api::SubmissionOrder;
use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::fleet::{Shared, see_target};

/// How long an agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a message may be on its way: longer than anyone waits for it.
const LONGEST_WAY: Duration = Duration::from_secs(3);

pub(crate) struct Agent {
    pub(crate) node: NodeName,
    pub(crate) session: Uuid,
    pub(crate) shared: Shared,
}

impl Agent {
    /// Submits facts and asks for its target, some times over.
    pub(crate) async fn run(self, rounds: usize) {
        let chance = self.shared.chance.clone();
        let mut version = 0;
        for _ in 0..rounds {
            tokio::time::sleep(chance.up_to(Duration::from_secs(4))).await;
            if chance.happens(60) {
                version += 1;
            }
            self.submit(version).await;
            self.look_at_target().await;
        }
    }

    async fn submit(&self, version: u64) {
        let number = self.shared.checker.says(&self.node, version);
        let order = SubmissionOrder {
            session: self.session,
            number,
        };
        let facts = json!({"version": version, "system_uptime": {"seconds": number}});
        let facts = FactSet::try_from(facts).expect("an object");
        let (answers, mut answered) = mpsc::unbounded_channel();
        let chance = &self.shared.chance;
        let copies = 1 + usize::from(chance.happens(25));
        for _ in 0..copies {
            self.send(facts.clone(), order, answers.clone());
        }
        drop(answers);
        let answer = tokio::time::timeout(PATIENCE, answered.recv()).await;
        if let Ok(Some(())) = answer {
            self.shared.checker.acknowledged(&self.node, number);
        }
    }

    /// One message: lost, late, or neither; its answer may be lost too.
    fn send(&self, facts: FactSet, order: SubmissionOrder, answer: mpsc::UnboundedSender<()>) {
        let (shared, node) = (self.shared.clone(), self.node.clone());
        let faults = shared.faults();
        let chance = shared.chance.clone();
        let lost = faults && chance.happens(15);
        let deaf = faults && chance.happens(15);
        let way = match faults && chance.happens(30) {
            true => LONGEST_WAY,
            false => Duration::from_millis(20),
        };
        let way = chance.up_to(way);
        tokio::spawn(async move {
            tokio::time::sleep(way).await;
            if lost {
                return;
            }
            shared.deliver(async move |facts_service| {
                let taken = facts_service.submit(&node, &facts, Some(order)).await;
                // A silent server is one that says nothing, not one that says no.
                if taken.is_ok() && !deaf {
                    let _ = answer.send(());
                }
            });
        });
    }

    async fn look_at_target(&self) {
        let Some((board, releases)) = self.shared.reader() else {
            return;
        };
        let Ok(Some(known)) = board.get(&self.node).await else {
            return;
        };
        see_target(&self.shared.checker, &releases, &self.node, &known).await;
    }
}
