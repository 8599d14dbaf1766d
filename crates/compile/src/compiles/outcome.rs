//! Stores the outcome of a compile, in the same transaction that removes the
//! node from the queue.
//!
//! The transaction compares the claim, so a server that lost it writes nothing.
//! A request that came during the compile stays in the queue.

use bunraku_model::catalog::Resource;
use bunraku_model::{
    Catalog, CatalogId, CodeId, ContentId, EnvironmentName, FactSetId, content_id_of_json,
};
use bunraku_store::{Compare, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::{CompileNote, CompileOutcome, CompileProblem, LastCompile};

use super::attempts::AttemptRecord;
use super::claim::Claim;
use super::compile_once::{CompileAttempt, ProposedCatalog};
use super::{CompileFailed, CompiledCatalog, Compiles, holder};
use crate::catalogs::{CatalogError, NewCatalog};
use crate::code_questions::AskedQuestion;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The result of storing an outcome.
pub(super) enum StoreOutcome {
    Done(CompileOutcome),
    /// The lease ended, or the node was removed: another server handles it.
    Lost,
}

/// The outcome to store.
struct OutcomeRecord {
    environment: EnvironmentName,
    code_id: Option<CodeId>,
    fact_set: Option<FactSetId>,
    notes: Vec<CompileNote>,
    /// Questions about other nodes.
    asked: Vec<AskedQuestion>,
    kind: OutcomeKind,
}

enum OutcomeKind {
    Good(Box<CompiledCatalog>),
    Bad(Vec<CompileProblem>, Option<AttemptRecord>),
    Nothing(CompileOutcome),
}

impl Compiles {
    /// Stores the catalog, if there is one, and the outcome.
    pub(super) async fn finish(
        &self,
        claim: &Claim,
        attempt: CompileAttempt,
        took_ms: u64,
    ) -> Result<StoreOutcome, ServiceError> {
        let verdict = self.decide(claim, attempt).await?;
        let verdict = &verdict;
        compare_and_swap(&*self.inner.store, |_| async move {
            if !self.still_ours(claim).await? {
                return Ok(Swap::Done(StoreOutcome::Lost));
            }
            let (transaction, outcome) = self.transaction(claim, verdict, took_ms).await?;
            Ok(Swap::Write(transaction, StoreOutcome::Done(outcome)))
        })
        .await
    }

    async fn decide(
        &self,
        claim: &Claim,
        attempt: CompileAttempt,
    ) -> Result<OutcomeRecord, ServiceError> {
        Ok(match attempt {
            CompileAttempt::NoCode { environment } => OutcomeRecord {
                environment,
                code_id: None,
                fact_set: None,
                notes: Vec::new(),
                asked: Vec::new(),
                kind: OutcomeKind::Nothing(CompileOutcome::NoCode),
            },
            CompileAttempt::NoFacts {
                environment,
                code_id,
            } => OutcomeRecord {
                environment,
                code_id: Some(code_id),
                fact_set: None,
                notes: Vec::new(),
                asked: Vec::new(),
                kind: OutcomeKind::Nothing(CompileOutcome::NoFacts),
            },
            CompileAttempt::Failed {
                environment,
                code_id,
                fact_set,
                problems,
                asked,
                quarantine,
            } => OutcomeRecord {
                environment,
                code_id: Some(code_id),
                fact_set: Some(fact_set),
                notes: Vec::new(),
                asked,
                kind: OutcomeKind::Bad(problems, quarantine),
            },
            CompileAttempt::Made(mut made) => OutcomeRecord {
                environment: made.environment.clone(),
                code_id: Some(made.code_id.clone()),
                fact_set: Some(made.fact_set),
                notes: std::mem::take(&mut made.notes),
                asked: std::mem::take(&mut made.asked),
                kind: self.store_catalog(claim, *made).await?,
            },
        })
    }

    /// Stores the catalog. A catalog that is too large is a failure of the
    /// code, not of the server.
    async fn store_catalog(
        &self,
        claim: &Claim,
        made: ProposedCatalog,
    ) -> Result<OutcomeKind, ServiceError> {
        let resources = made.catalog.resources.len();
        let exports = exports_id(&made.catalog);
        let new = NewCatalog {
            node: claim.node.clone(),
            environment: made.environment.clone(),
            code_id: made.code_id.clone(),
            catalog: made.catalog,
            files: made.files,
        };
        match self.inner.catalogs.put_as(made.id, &new).await {
            Ok((catalog, content)) => Ok(OutcomeKind::Good(Box::new(CompiledCatalog {
                environment: made.environment,
                catalog,
                content,
                code_id: made.code_id,
                fact_set: made.fact_set,
                compiled_at: self.inner.clock.now(),
                config_version: made.config_version,
                resources,
                exports,
                reads_from_nodes: made.reads_from_nodes,
            }))),
            Err(error @ (CatalogError::TooLarge { .. } | CatalogError::TooManyFiles { .. })) => {
                let problem = CompileProblem {
                    message: error.to_string(),
                    hint: Some("raise `max_catalog_bytes` under [server.compile]".to_owned()),
                    ..CompileProblem::default()
                };
                Ok(OutcomeKind::Bad(vec![problem], None))
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
        verdict: &OutcomeRecord,
        took_ms: u64,
    ) -> Result<(Transaction, CompileOutcome), ServiceError> {
        let node = &claim.node;
        let claimed = keys::compile_claim(node);
        let mut transaction = Transaction::new()
            .when(Compare::Modified(claimed.clone(), claim.token))
            .when(Compare::Exists(keys::node_record(node)))
            .delete(claimed);
        let quarantine = match &verdict.kind {
            OutcomeKind::Bad(_, quarantine) => quarantine.as_ref(),
            _ => None,
        };
        transaction = Self::close_in(transaction, claim, quarantine);
        let request = self.inner.store.get(&keys::compile_request(node)).await?;
        transaction = self
            .reads_in(transaction, claim, &verdict.asked, request.as_ref())
            .await?;
        if let Some(request) = request.filter(|request| request.modified == claim.requested) {
            transaction = transaction
                .when_unchanged(&request.key, Some(&request))
                .delete(request.key.clone());
        }
        let (mut transaction, outcome) = match &verdict.kind {
            OutcomeKind::Good(compiled) => {
                self.record_success(claim, transaction, compiled).await?
            }
            OutcomeKind::Bad(problems, quarantine) => {
                let outcome = CompileOutcome::Failed {
                    problems: problems.clone(),
                    quarantined: quarantine.is_some(),
                };
                (
                    self.record_failure(claim, transaction, verdict, problems),
                    outcome,
                )
            }
            OutcomeKind::Nothing(outcome) => (transaction, outcome.clone()),
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
    async fn record_success(
        &self,
        claim: &Claim,
        transaction: Transaction,
        compiled: &CompiledCatalog,
    ) -> Result<(Transaction, CompileOutcome), ServiceError> {
        let node = &claim.node;
        let key = keys::compiled(node);
        let before = document::read::<CompiledCatalog>(&*self.inner.store, &key).await?;
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
                transaction = self.release_catalog(transaction, old, claim);
            }
        }
        let outcome = CompileOutcome::Compiled {
            catalog: compiled.catalog,
            resources: compiled.resources,
            changed,
        };
        Ok((transaction, outcome))
    }

    fn release_catalog(
        &self,
        transaction: Transaction,
        old: CatalogId,
        claim: &Claim,
    ) -> Transaction {
        let catalogs = &self.inner.catalogs;
        catalogs.release_in(transaction, old, &holder(&claim.node))
    }

    fn record_failure(
        &self,
        claim: &Claim,
        transaction: Transaction,
        verdict: &OutcomeRecord,
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

/// Returns the hash of the exports of a catalog. Their places do not count.
fn exports_id(catalog: &Catalog) -> Option<ContentId> {
    if catalog.exports.is_empty() {
        return None;
    }
    let exports: Vec<_> = (catalog.exports.iter())
        .map(|export| Resource {
            file: None,
            line: None,
            ..export.clone()
        })
        .collect();
    let value = serde_json::to_value(&exports).expect("resources are plain data");
    Some(content_id_of_json(&value))
}
