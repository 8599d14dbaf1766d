//! Attempts to compile a node, and the quarantine of work that kills.
//!
//! The claim's transaction opens the node's attempt, and the outcome's closes it. So an attempt that
//! is open without a claim belongs to a server that died. A worker that dies during an attempt is
//! recorded in it. Work that killed its worker twice is not tried again with the same inputs, unless
//! a person asks for it. A server may die for many reasons, and each of its compiles is suspected
//! then. Therefore the death of a server counts less.
//!
//! Invariant: no work is started more often than [`MOST_WORKER_DEATHS`] and [`MOST_SERVER_DEATHS`]
//! allow, no matter which servers die and restart.

use bunraku_model::{NodeName, ServerId, content_id_of_json};
use bunraku_store::{Compare, Revision, Transaction, TransactionOutcome};
use bunraku_wire::api::CompileProblem;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::claim::Claim;
use super::compile_once::{CompileAttempt, PreparedCompile};
use super::compiler::CompileRequest;
use super::{CompileFailure, Compiles};
use bunraku_control::document::{self, Decision};
use bunraku_control::error::chain;
use bunraku_control::{ServiceError, keys};

/// Deaths of workers after which work is in quarantine.
const MOST_WORKER_DEATHS: usize = 2;
/// Deaths of servers after which work is in quarantine.
const MOST_SERVER_DEATHS: usize = 3;

/// The stored form of an attempt. It exists while a node is compiled, and as long as there are
/// deaths to remember.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct AttemptRecord {
    /// The server that works on it. A server that is done removes its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) open: Option<ServerId>,
    /// The digest of the inputs that the deaths belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) deaths: Vec<CompileDeath>,
    /// The person's request that made the deaths forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forgiven: Option<u64>,
}

/// A compile that ended with the process that performed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CompileDeath {
    at: Timestamp,
    victim: DeadProcess,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeadProcess {
    Worker,
    Server,
}

impl AttemptRecord {
    fn deaths_of(&self, victim: DeadProcess) -> usize {
        let deaths = self.deaths.iter();
        deaths.filter(|death| death.victim == victim).count()
    }

    fn is_quarantined(&self) -> bool {
        self.deaths_of(DeadProcess::Worker) >= MOST_WORKER_DEATHS
            || self.deaths_of(DeadProcess::Server) >= MOST_SERVER_DEATHS
    }

    /// Keeps only deaths that belong to these inputs. A person who asks has them all forgotten,
    /// once per request.
    fn for_inputs(&mut self, inputs: String, asked: Option<Revision>) {
        let asked = asked.map(|revision| revision.0);
        let is_new = asked.is_some() && asked != self.forgiven;
        if is_new || self.inputs.as_ref().is_some_and(|known| *known != inputs) {
            self.deaths.clear();
        }
        if is_new {
            self.forgiven = asked;
        }
        self.inputs = Some(inputs);
    }

    /// Returns the newest death, as a problem of the code.
    fn problem(&self) -> CompileProblem {
        let (count, what) = match self.deaths_of(DeadProcess::Worker) {
            0 => (self.deaths_of(DeadProcess::Server), "server"),
            count => (count, "worker"),
        };
        let message = self.deaths.last().map(|death| death.message.clone());
        CompileProblem {
            message: message.unwrap_or_default(),
            hint: Some(format!(
                "Quarantined: this compile killed its {what} {count} times. It is tried again when \
                 the node's facts, the code or the environment's settings change. Run `bunraku \
                 compile NODE` to try it now."
            )),
            ..CompileProblem::default()
        }
    }
}

/// Returns a digest of what a compile depends on, besides data about other nodes.
fn inputs(request: &CompileRequest) -> String {
    let inputs = json!({
        "environment": request.environment,
        "code": request.code_id,
        "facts": request.fact_set,
        "extensions": request.extensions,
        "ordering": request.ordering,
        "external": request.allows_external,
        "fact_targeting": request.fact_targeting,
        // Another version may have a better compiler.
        "version": env!("CARGO_PKG_VERSION"),
    });
    content_id_of_json(&inputs).to_string()
}

impl Compiles {
    /// Compiles the claimed node, unless that is known to kill. A worker's death is recorded before
    /// the next try.
    pub(super) async fn attempt(
        &self,
        claim: &mut Claim,
    ) -> Result<CompileAttempt, CompileFailure> {
        loop {
            let (environment, request) = match self.prepare(&claim.node).await? {
                PreparedCompile::Ready(environment, request) => (environment, *request),
                PreparedCompile::Nothing(attempt) => return Ok(attempt),
            };
            let asked = claim.asked.then_some(claim.requested);
            claim.record.for_inputs(inputs(&request), asked);
            if std::mem::take(&mut claim.was_interrupted) {
                let message = "the server ended while it compiled the node".to_owned();
                self.add_death(claim, DeadProcess::Server, message).await?;
            }
            if claim.record.is_quarantined() {
                return Ok(CompileAttempt::Failed {
                    environment,
                    code_id: request.code_id,
                    fact_set: request.fact_set,
                    problems: vec![claim.record.problem()],
                    asked: Vec::new(),
                    quarantine: Some(claim.record.clone()),
                });
            }
            match self.attempt_request(environment, request).await {
                Err(CompileFailure::WorkerDied(message)) => {
                    tracing::warn!(node = %claim.node, message, "a compile killed its worker");
                    self.add_death(claim, DeadProcess::Worker, message).await?;
                }
                done => return done,
            }
        }
    }

    /// Records a death in the attempt, which stays open.
    async fn add_death(
        &self,
        claim: &mut Claim,
        victim: DeadProcess,
        message: String,
    ) -> Result<(), CompileFailure> {
        claim.record.deaths.push(CompileDeath {
            at: self.inner.clock.now(),
            victim,
            message,
        });
        let key = keys::compile_attempt(&claim.node);
        let transaction = Transaction::new()
            .when(Compare::Modified(
                keys::compile_claim(&claim.node),
                claim.token,
            ))
            .put(key, document::encode(&claim.record));
        let written = self.inner.store.commit(transaction).await;
        match written.map_err(|error| CompileFailure::temporary(ServiceError::from(error)))? {
            TransactionOutcome::Committed(revision) => {
                claim.attempt = revision;
                Ok(())
            }
            TransactionOutcome::Refused(_) => {
                let message = "another server has taken over the node".to_owned();
                Err(CompileFailure::temporary(ServiceError::Busy { message }))
            }
        }
    }

    /// Adds the end of the claim's attempt to a transaction that compares the claim.
    pub(super) fn close_in(
        transaction: Transaction,
        claim: &Claim,
        kept: Option<&AttemptRecord>,
    ) -> Transaction {
        let key = keys::compile_attempt(&claim.node);
        match kept.filter(|record| !record.deaths.is_empty()) {
            None => transaction.delete(key),
            Some(record) => {
                let closed = AttemptRecord {
                    open: None,
                    ..record.clone()
                };
                transaction.put(key, document::encode(&closed))
            }
        }
    }

    /// Closes the attempts of a server that stops. They did not kill it.
    pub(super) async fn close_own_attempts(&self, nodes: impl Iterator<Item = &NodeName>) {
        for node in nodes {
            let key = keys::compile_attempt(node);
            let closed =
                document::update(&*self.inner.store, &key, |record: Option<AttemptRecord>| {
                    let ours = record.filter(|one| one.open == Some(self.inner.server));
                    Ok::<_, ServiceError>(match ours {
                        None => Decision::Keep,
                        Some(record) => Decision::Write(AttemptRecord {
                            open: None,
                            ..record
                        }),
                    })
                });
            if let Err(error) = closed.await {
                tracing::warn!(%node, error = %chain(&error), "cannot record that a compile was stopped");
            }
        }
    }

    /// Closes the attempt of a claim that is lost. The attempt did not kill anything.
    pub(super) async fn close_lost(&self, claim: &Claim) -> Result<(), ServiceError> {
        let key = keys::compile_attempt(&claim.node);
        let transaction = Transaction::new().when(Compare::Modified(key, claim.attempt));
        let transaction = Self::close_in(transaction, claim, Some(&claim.record));
        self.inner.store.commit(transaction).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(record: &mut AttemptRecord, victim: DeadProcess) {
        record.deaths.push(CompileDeath {
            at: Timestamp::UNIX_EPOCH,
            victim,
            message: "killed".to_owned(),
        });
    }

    fn with_deaths(inputs: &str, workers: usize, servers: usize) -> AttemptRecord {
        let mut record = AttemptRecord::default();
        record.for_inputs(inputs.to_owned(), None);
        for _ in 0..workers {
            died(&mut record, DeadProcess::Worker);
        }
        for _ in 0..servers {
            died(&mut record, DeadProcess::Server);
        }
        record
    }

    #[test]
    fn two_workers_or_three_servers_may_die() {
        let expected = [
            (0, 0, false),
            (1, 0, false),
            (2, 0, true),
            (1, 2, false),
            (0, 3, true),
        ];
        for (workers, servers, quarantined) in expected {
            let record = with_deaths("a", workers, servers);
            let shown = format!("{workers} workers, {servers} servers");
            assert_eq!(record.is_quarantined(), quarantined, "{shown}");
        }
    }

    #[test]
    fn deaths_are_forgotten_when_the_inputs_change() {
        let mut record = with_deaths("a", 2, 0);
        record.for_inputs("a".to_owned(), None);
        assert!(record.is_quarantined());
        record.for_inputs("b".to_owned(), None);
        assert!(!record.is_quarantined());
    }

    #[test]
    fn a_person_is_granted_one_try_per_request() {
        let mut record = with_deaths("a", 2, 0);
        record.for_inputs("a".to_owned(), Some(Revision(7)));
        assert!(!record.is_quarantined());
        // The request is still there when a server restarts.
        died(&mut record, DeadProcess::Worker);
        died(&mut record, DeadProcess::Worker);
        record.for_inputs("a".to_owned(), Some(Revision(7)));
        assert!(record.is_quarantined());
        record.for_inputs("a".to_owned(), Some(Revision(8)));
        assert!(!record.is_quarantined());
    }

    #[test]
    fn a_death_before_the_inputs_were_known_belongs_to_the_next_ones() {
        let mut record = AttemptRecord::default();
        died(&mut record, DeadProcess::Server);
        record.for_inputs("a".to_owned(), None);
        assert_eq!(record.deaths.len(), 1);
    }
}
