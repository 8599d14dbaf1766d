//! Stores the outcome of a compile, in the same transaction that removes the
//! node from the queue.
//!
//! The transaction compares the claim, so a server that lost it writes nothing.
//! A request that came during the compile stays in the queue.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, FactSetId};
use bunraku_store::{Compare, StoreError, Transaction};
use bunraku_wire::api::{CompileNote, CompileOutcome, CompileProblem, LastCompile};

use super::carry_out::{Attempt, Proposed};
use super::claim::Claim;
use super::compiled::config_version;
use super::{CompileFailed, Compiled, Compiles, holder};
use crate::catalogs::{CatalogError, NewCatalog};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Number of times that a write with an unknown outcome is checked again.
const ATTEMPTS: usize = 5;

/// The result of storing an outcome.
pub(super) enum Written {
    Done(CompileOutcome),
    /// The lease ended, or the node was removed: another server handles it.
    Lost,
}

/// The outcome to store.
struct Verdict {
    environment: EnvironmentName,
    code_id: Option<CodeId>,
    fact_set: Option<FactSetId>,
    notes: Vec<CompileNote>,
    kind: Kind,
}

enum Kind {
    Good(Compiled),
    Bad(Vec<CompileProblem>),
    Nothing(CompileOutcome),
}

impl Compiles {
    /// Stores the catalog, if there is one, and the outcome.
    pub(super) async fn finish(
        &self,
        claim: &Claim,
        attempt: Attempt,
        took_ms: u64,
    ) -> Result<Written, ServiceError> {
        let verdict = self.verdict(claim, attempt).await?;
        let mut unknown = 0;
        loop {
            if !self.still_ours(claim).await? {
                return Ok(Written::Lost);
            }
            let (transaction, outcome) = self.transaction(claim, &verdict, took_ms).await?;
            match self.inner.store.commit(transaction).await {
                Ok(done) if done.is_committed() => return Ok(Written::Done(outcome)),
                Ok(_) => {}
                Err(StoreError::OutcomeUnknown(_)) if unknown < ATTEMPTS => unknown += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn verdict(&self, claim: &Claim, attempt: Attempt) -> Result<Verdict, ServiceError> {
        Ok(match attempt {
            Attempt::NoCode { environment } => Verdict {
                environment,
                code_id: None,
                fact_set: None,
                notes: Vec::new(),
                kind: Kind::Nothing(CompileOutcome::NoCode),
            },
            Attempt::NoFacts {
                environment,
                code_id,
            } => Verdict {
                environment,
                code_id: Some(code_id),
                fact_set: None,
                notes: Vec::new(),
                kind: Kind::Nothing(CompileOutcome::NoFacts),
            },
            Attempt::Failed {
                environment,
                code_id,
                fact_set,
                problems,
            } => Verdict {
                environment,
                code_id: Some(code_id),
                fact_set: Some(fact_set),
                notes: Vec::new(),
                kind: Kind::Bad(problems),
            },
            Attempt::Made(mut made) => Verdict {
                environment: made.environment.clone(),
                code_id: Some(made.code_id.clone()),
                fact_set: Some(made.fact_set),
                notes: std::mem::take(&mut made.notes),
                kind: self.keep(claim, *made).await?,
            },
        })
    }

    /// Stores the catalog. A catalog that is too large is a failure of the
    /// code, not of the server.
    async fn keep(&self, claim: &Claim, made: Proposed) -> Result<Kind, ServiceError> {
        let resources = made.catalog.resources.len();
        let new = NewCatalog {
            node: claim.node.clone(),
            environment: made.environment.clone(),
            code_id: made.code_id.clone(),
            catalog: made.catalog,
            files: made.files,
        };
        match self.inner.catalogs.put(&new).await {
            Ok((catalog, content)) => Ok(Kind::Good(Compiled {
                environment: made.environment,
                catalog,
                content,
                code_id: made.code_id,
                fact_set: made.fact_set,
                compiled_at: self.inner.clock.now(),
                config_version: config_version(catalog),
                resources,
                reads_from_nodes: made.reads_from_nodes,
            })),
            Err(error @ (CatalogError::TooLarge { .. } | CatalogError::TooManyFiles { .. })) => {
                Ok(Kind::Bad(vec![CompileProblem {
                    message: error.to_string(),
                    hint: Some(
                        "`max_catalog_bytes` under [server.compile] is the limit".to_owned(),
                    ),
                    ..CompileProblem::default()
                }]))
            }
            Err(other) => Err(other.into()),
        }
    }

    async fn still_ours(&self, claim: &Claim) -> Result<bool, ServiceError> {
        let node = &claim.node;
        let found = self.inner.store.get(&keys::compile_claim(node)).await?;
        let exists = self.inner.store.get(&keys::node_record(node)).await?;
        Ok(found.is_some_and(|found| found.modified == claim.token) && exists.is_some())
    }

    async fn transaction(
        &self,
        claim: &Claim,
        verdict: &Verdict,
        took_ms: u64,
    ) -> Result<(Transaction, CompileOutcome), ServiceError> {
        let node = &claim.node;
        let claimed = keys::compile_claim(node);
        let mut transaction = Transaction::new()
            .when(Compare::Modified(claimed.clone(), claim.token))
            .when(Compare::Exists(keys::node_record(node)))
            .delete(claimed);
        let request = self.inner.store.get(&keys::compile_request(node)).await?;
        if let Some(request) = request.filter(|request| request.modified == claim.requested) {
            transaction = transaction
                .when_unchanged(&request.key, Some(&request))
                .delete(request.key.clone());
        }
        let (mut transaction, outcome) = match &verdict.kind {
            Kind::Good(compiled) => self.good(claim, transaction, compiled).await?,
            Kind::Bad(problems) => {
                let outcome = CompileOutcome::Failed {
                    problems: problems.clone(),
                };
                (self.bad(claim, transaction, verdict, problems), outcome)
            }
            Kind::Nothing(outcome) => (transaction, outcome.clone()),
        };
        let status = LastCompile {
            environment: verdict.environment.clone(),
            code_id: verdict.code_id.clone(),
            fact_set: verdict.fact_set,
            at: self.inner.clock.now(),
            took_ms,
            outcome: outcome.clone(),
            notes: verdict.notes.clone(),
        };
        transaction = transaction.put(keys::compile_status(node), document::encode(&status));
        Ok((transaction, outcome))
    }

    /// Moves the pointer and its hold, if the catalog changed.
    async fn good(
        &self,
        claim: &Claim,
        transaction: Transaction,
        compiled: &Compiled,
    ) -> Result<(Transaction, CompileOutcome), ServiceError> {
        let node = &claim.node;
        let key = keys::compiled(node);
        let before = document::read::<Compiled>(&*self.inner.store, &key).await?;
        let known = before.as_ref().map(|before| &before.entry);
        let changed = before.as_ref().map(|before| before.document.catalog);
        let changed = changed != Some(compiled.catalog);
        let mut transaction = transaction
            .when_unchanged(&key, known)
            .delete(keys::compile_error(node));
        if changed {
            let catalogs = &self.inner.catalogs;
            transaction = catalogs
                .hold_in(transaction, compiled.catalog, &holder(node))
                .await?
                .put(key, document::encode(compiled));
            if let Some(old) = before.map(|before| before.document.catalog) {
                transaction = self.let_go(transaction, old, claim);
            }
        }
        let outcome = CompileOutcome::Compiled {
            catalog: compiled.catalog,
            resources: compiled.resources,
            changed,
        };
        Ok((transaction, outcome))
    }

    fn let_go(&self, transaction: Transaction, old: CatalogId, claim: &Claim) -> Transaction {
        let catalogs = &self.inner.catalogs;
        catalogs.let_go_in(transaction, old, &holder(&claim.node))
    }

    fn bad(
        &self,
        claim: &Claim,
        transaction: Transaction,
        verdict: &Verdict,
        problems: &[CompileProblem],
    ) -> Transaction {
        let Some(code_id) = verdict.code_id.clone() else {
            return transaction;
        };
        let failed = CompileFailed {
            environment: verdict.environment.clone(),
            code_id,
            fact_set: verdict.fact_set,
            failed_at: self.inner.clock.now(),
            problems: problems.to_vec(),
        };
        transaction.put(keys::compile_error(&claim.node), document::encode(&failed))
    }
}
