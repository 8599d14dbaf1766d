//! Ordered runs over many nodes: stored, queued, and driven by one server each.
//!
//! A run is a record, a plan and a log. `bunraku_plan::run`, which is pure,
//! decides what happens; this module stores its events, and only then performs
//! its actions. Every open run has a leader, a key bound to a lease. Every append
//! to the log names the leader in the transaction, so that a leader that was
//! presumed dead can no longer write.
//!
//! Runs that share nodes wait for each other in the order in which they were due
//! (`turn`), and hold their nodes exclusively while they run (`holds`).
//!
//! Absent: a node's actions in its run (`agent`), and its report of them (`reports`).

mod answers;
mod approval;
mod board;
mod check_results;
mod checks;
mod drive;
mod hold_board;
mod holds;
mod lead;
mod log;
mod perform;
mod sources;
mod turn;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{NodeName, RunId, ServerId};
use bunraku_plan::run::{
    NewRun, Run, RunDetail, RunEnd, RunLog, RunOutcome, RunRecord, RunSummary, StepState,
};
use bunraku_plan::{RunPlan, StaleNode, StepIndex};
use bunraku_store::{Compare, SharedStore, Transaction, WatchStart, read_each, settle};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::plans::{PlanPurpose, Plans};
use bunraku_control::clock::Clock;
use bunraku_control::document;
use bunraku_control::find_nodes::check_node_query;
use bunraku_control::keys::RunRequestKind;
use bunraku_control::reports::Reports;
use bunraku_control::{FindNodes, ServiceAudit, ServiceError, keys};
use bunraku_cues::reactors::ReactorInbox;
use bunraku_wire::api::{Page, PageQuery, TriggerCause};
pub use holds::Hold;

/// Bytes of a plan per key: stores accept a megabyte.
const PLAN_CHUNK: usize = 500_000;
/// The number of ended runs that are kept.
const RUNS_KEPT: usize = 200;
/// The age at which a plan without a record belongs to no run that is being created.
const UNRECORDED: Duration = Duration::from_secs(3_600);
/// The number of nodes that a refusal names.
const NAMED_NODES: usize = 20;

/// The options of the service.
#[derive(Clone, Debug)]
pub struct OrchestrationOptions {
    /// The time of silence after which a leader is replaced.
    pub leader_ttl: Duration,
    /// The time for which nodes stay held after their leader was last heard from,
    /// and agents after a server was. Well above `leader_ttl`, so that a takeover
    /// leaves no gap.
    pub hold_ttl: Duration,
}

impl Default for OrchestrationOptions {
    fn default() -> Self {
        Self {
            leader_ttl: Duration::from_secs(10),
            hold_ttl: Duration::from_secs(60),
        }
    }
}

/// The handle on the service.
#[derive(Clone)]
pub struct Orchestration {
    inner: Arc<Inner>,
}

struct Inner {
    store: SharedStore,
    clock: Clock,
    server: ServerId,
    options: OrchestrationOptions,
    holds: hold_board::HoldBoard,
    links: OrchestrationLinks,
}

/// The services that runs notify and ask.
#[derive(Clone)]
pub struct OrchestrationLinks {
    pub reports: Reports,
    pub plans: Plans,
    /// Records what runs did.
    pub audit: ServiceAudit,
    pub reactors: ReactorInbox,
    /// Answers the queries of checks.
    pub find_nodes: Arc<dyn FindNodes>,
}

/// Where a run comes from.
#[derive(Clone, Debug)]
pub struct RunOrigin {
    pub id: RunId,
    pub by: String,
    /// The chain of causes, if a reactor starts it.
    pub causes: Vec<TriggerCause>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredRunRequest {
    by: String,
}

impl Orchestration {
    pub fn new(
        store: SharedStore,
        clock: Clock,
        server: ServerId,
        options: OrchestrationOptions,
        links: OrchestrationLinks,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                server,
                options,
                holds: hold_board::HoldBoard::default(),
                links,
            }),
        }
    }

    /// Accepts a run. Some server leads it from here on.
    pub async fn create(&self, new: NewRun, by: &str) -> Result<RunRecord, ServiceError> {
        let origin = RunOrigin {
            id: RunId(Uuid::now_v7()),
            by: by.to_owned(),
            causes: Vec::new(),
        };
        self.create_from(new, origin).await
    }

    /// Accepts a run under an id that its origin determines. A second call with the same id
    /// changes nothing.
    pub async fn create_from(
        &self,
        new: NewRun,
        origin: RunOrigin,
    ) -> Result<RunRecord, ServiceError> {
        self.check_due_and_hooks(&new)?;
        let options = &new.plan.options;
        if let Some(problem) = options.problem() {
            return Err(ServiceError::invalid(problem));
        }
        checks::refuse_impossible(&options.checks)?;
        let plan = self.bound(new.plan.clone()).await?;
        let done = match new.resumes {
            Some(earlier) => self.succeeded_in(earlier, &plan, new.replanned).await?,
            None => Vec::new(),
        };
        let approval = self.approval(&plan, &new, &origin).await?;
        let record = RunRecord {
            id: origin.id,
            plan: plan.id,
            environment: plan.environment.clone(),
            steps: plan.steps.len(),
            nodes: plan.nodes().len(),
            options: plan.options.clone(),
            subject: plan.subject.clone(),
            due: new.due,
            hooks: new.hooks,
            by: origin.by,
            created: self.inner.clock.now(),
            reason: new.reason,
            site: new.site,
            resumes: new.resumes,
            done,
            replanned: new.replanned,
            causes: origin.causes,
            approval,
        };
        self.refuse_stale(&plan, &record).await?;
        self.write_plan(record.id, &plan).await?;
        self.inner.links.plans.pin(record.id, &plan).await?;
        let key = keys::run_record(record.id);
        // The key that marks the run as open is created with the record. Its
        // revision is the run's place in the queue, unless the run is scheduled
        // for later.
        let place = match record.due.not_before {
            Some(due) if due > self.inner.clock.now() => turn::SCHEDULED,
            // Until it is approved, it delays no other run.
            _ if record.pending_approval().is_some() => turn::SCHEDULED,
            _ => "",
        };
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .when(Compare::Exists(keys::run_plan(record.id, 0)))
            .put(key, document::encode(&record))
            .put(keys::open_run(record.id), place);
        settle(&*self.inner.store, transaction).await?;
        self.forget_old_runs().await?;
        Ok(record)
    }

    /// Returns a plan that names the work of every node.
    async fn bound(&self, plan: RunPlan) -> Result<RunPlan, ServiceError> {
        if let Some(why) = plan.problem() {
            return Err(ServiceError::invalid(format!("cannot run the plan: {why}")));
        }
        let named = plan.steps.iter().filter(|step| step.work.is_some()).count();
        match named {
            0 => self.inner.links.plans.bind(plan, false).await,
            all if all == plan.steps.len() => Ok(plan),
            _ => Err(ServiceError::invalid(
                "cannot run the plan: some steps do not name their work",
            )),
        }
    }

    /// Refuses a plan that is no longer what the nodes would do.
    async fn refuse_stale(&self, plan: &RunPlan, record: &RunRecord) -> Result<(), ServiceError> {
        let (plans, done) = (&self.inner.links.plans, &record.done);
        let purpose = purpose(record);
        let stale = plans.stale_nodes(plan, done, purpose).await?;
        let (message, hint) = match purpose {
            PlanPurpose::Resume => (
                "the plan of that run cannot be completed any more",
                "see what a new plan would change with `bunraku run resume --replan`",
            ),
            PlanPurpose::NewRun => (
                "the plan has changed since it was made",
                "review the new plan with `bunraku plan`",
            ),
        };
        refuse(message, &stale, hint)
    }

    /// Refuses due times and hooks that can never take effect.
    fn check_due_and_hooks(&self, new: &NewRun) -> Result<(), ServiceError> {
        if let Some(latest) = new.due.start_before
            && latest <= new.due.not_before.unwrap_or(self.inner.clock.now())
        {
            return Err(ServiceError::invalid(format!(
                "the latest start time {latest} is in the past"
            )));
        }
        let hooks = new.hooks.on_success.iter().chain(&new.hooks.on_failure);
        for hook in hooks {
            match (&hook.query, hook.hosts.is_empty()) {
                (Some(query), _) => check_node_query(query)?,
                (None, true) => {
                    return Err(ServiceError::invalid(format!(
                        "trigger `{}` needs hosts to start runs on",
                        hook.trigger
                    )));
                }
                (None, false) => {}
            }
        }
        Ok(())
    }

    /// Returns the steps of the plan that succeeded in an ended run.
    async fn succeeded_in(
        &self,
        earlier: RunId,
        plan: &RunPlan,
        replanned: bool,
    ) -> Result<Vec<StepIndex>, ServiceError> {
        let detail = self.show(earlier).await?;
        if detail.end.is_none() {
            return Err(ServiceError::conflict(
                format!("run {earlier} has not ended"),
                format!("follow it with `bunraku run watch {earlier}`"),
            ));
        }
        if !replanned && detail.record.plan != plan.id {
            return Err(ServiceError::conflict(
                "this is not the plan of that run",
                format!("see the difference with `bunraku run resume {earlier} --replan`"),
            ));
        }
        let before = Arc::new(detail.plan);
        let (run, _) = Run::of_record(&detail.record, before.clone(), detail.log.entries);
        if !replanned && run.outcome() == Some(RunOutcome::Succeeded) {
            return Err(ServiceError::conflict(
                format!("run {earlier} succeeded: nothing is left to run"),
                format!("plan again with `bunraku run resume {earlier} --replan`"),
            ));
        }
        let succeeded = |step: StepIndex| run.statuses()[step.at()].state == StepState::Succeeded;
        Ok(bunraku_plan::unchanged_steps(&before, plan, succeeded))
    }

    async fn write_plan(&self, run: RunId, plan: &RunPlan) -> Result<(), ServiceError> {
        let text = document::encode(plan);
        for (number, start) in (0..).zip((0..text.len()).step_by(PLAN_CHUNK)) {
            let chunk = text.slice(start..text.len().min(start + PLAN_CHUNK));
            let transaction = Transaction::new().put(keys::run_plan(run, number), chunk);
            settle(&*self.inner.store, transaction).await?;
        }
        Ok(())
    }

    /// Returns all runs, newest first.
    pub async fn list(&self) -> Result<Vec<RunSummary>, ServiceError> {
        let mut runs = Vec::new();
        for entry in document::read_all(&*self.inner.store, keys::RUN_RECORDS).await? {
            let record: RunRecord = document::decode(&entry)?;
            let end = self.end_of(record.id).await?;
            runs.push(RunSummary { record, end });
        }
        runs.reverse();
        Ok(runs)
    }

    /// Returns one page of all runs, newest first.
    pub async fn page(&self, query: &PageQuery) -> Result<Page<RunSummary>, ServiceError> {
        let store = &*self.inner.store;
        let mut ids: Vec<RunId> = document::keys_under(store, keys::RUN_RECORDS)
            .await?
            .iter()
            .filter_map(|key| keys::parse_run_record(key))
            .collect();
        ids.reverse();
        // Ids begin with their time, so the inverted id sorts newer runs first.
        let ids = query.cut(ids, |id| format!("{:032x}", u128::MAX - id.0.as_u128()));
        let ids = ids.map_err(|error| ServiceError::invalid(error.to_string()))?;
        let records: Vec<String> = ids.items.iter().map(|id| keys::run_record(*id)).collect();
        let ends: Vec<String> = ids.items.iter().map(|id| keys::run_end(*id)).collect();
        let records = read_each(store, &records).await?;
        let ends = read_each(store, &ends).await?;
        let mut runs = Vec::new();
        for (record, end) in records.iter().zip(&ends) {
            // Otherwise it was deleted in the meantime.
            if let Some(record) = record {
                runs.push(RunSummary {
                    record: document::decode(record)?,
                    end: end.as_ref().map(document::decode).transpose()?,
                });
            }
        }
        Ok(Page {
            items: runs,
            next: ids.next,
            total: ids.total,
        })
    }

    /// Finds a run by a prefix of its id.
    pub async fn find(&self, prefix: &str) -> Result<RunId, ServiceError> {
        if let Ok(id) = prefix.parse() {
            return Ok(id);
        }
        let ids: Vec<RunId> = document::keys_under(&*self.inner.store, keys::RUN_RECORDS)
            .await?
            .iter()
            .filter_map(|key| keys::parse_run_record(key))
            .filter(|id| {
                let text = id.to_string();
                text.starts_with(prefix) || text.ends_with(prefix)
            })
            .collect();
        match ids.as_slice() {
            [id] => Ok(*id),
            [] => Err(no_such_run(prefix)),
            _ => Err(ServiceError::invalid(format!(
                "`{prefix}` matches {} runs",
                ids.len()
            ))),
        }
    }

    /// Returns everything about one run.
    pub async fn show(&self, run: RunId) -> Result<RunDetail, ServiceError> {
        // Read the end first: if it exists, the log is complete.
        let end = self.end_of(run).await?;
        let record = self.record(run).await?;
        let plan = self.inner.plan(run).await?;
        let log = log::read(&*self.inner.store, run, 0).await?;
        let waits = match &end {
            Some(_) => Vec::new(),
            None => {
                let entries = log.entries.clone();
                let (run, _) = Run::of_record(&record, Arc::new(plan.clone()), entries);
                run.waits()
            }
        };
        Ok(RunDetail {
            record,
            plan,
            log,
            end,
            waits,
        })
    }

    /// Returns the record and the nodes of a run.
    pub async fn nodes_of(
        &self,
        run: RunId,
    ) -> Result<(RunRecord, BTreeSet<NodeName>), ServiceError> {
        let record = self.record(run).await?;
        let plan = self.inner.plan(run).await?;
        let nodes = plan.steps.into_iter().map(|step| step.node);
        Ok((record, nodes.collect()))
    }

    /// Returns the log from `after` on; waits for new entries if there are none.
    pub async fn follow_log(
        &self,
        run: RunId,
        after: u64,
        most: Duration,
    ) -> Result<(RunLog, Option<RunEnd>), ServiceError> {
        self.record(run).await?;
        let shown = async {
            loop {
                // The watches are open before the read, so that nothing is missed in between.
                let store = &self.inner.store;
                let mut news = store
                    .watch(&keys::run_log_prefix(run), WatchStart::Now)
                    .await?;
                let mut over = store.watch(&keys::run_end(run), WatchStart::Now).await?;
                let end = self.end_of(run).await?;
                let log = log::read(&**store, run, after).await?;
                if !log.entries.is_empty() || end.is_some() {
                    return Ok::<_, ServiceError>((log, end));
                }
                tokio::select! {
                    _ = news.next() => {}
                    _ = over.next() => {}
                }
            }
        };
        match tokio::time::timeout(most, shown).await {
            Ok(shown) => shown,
            Err(_) => {
                let end = self.end_of(run).await?;
                Ok((log::read(&*self.inner.store, run, after).await?, end))
            }
        }
    }

    /// Asks the leader to stop or cancel the run.
    pub async fn ask(
        &self,
        run: RunId,
        what: RunRequestKind,
        by: &str,
    ) -> Result<(), ServiceError> {
        self.record(run).await?;
        if self.end_of(run).await?.is_some() {
            return Err(ServiceError::conflict(
                format!("run {run} has ended"),
                format!("see its result with `bunraku run show {run}`"),
            ));
        }
        let key = keys::run_request(run, what);
        let asked = StoredRunRequest { by: by.to_owned() };
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&asked));
        settle(&*self.inner.store, transaction).await?;
        Ok(())
    }

    async fn record(&self, run: RunId) -> Result<RunRecord, ServiceError> {
        let stored = document::read(&*self.inner.store, &keys::run_record(run)).await?;
        stored
            .map(|stored| stored.document)
            .ok_or_else(|| no_such_run(&run.to_string()))
    }

    async fn end_of(&self, run: RunId) -> Result<Option<RunEnd>, ServiceError> {
        let stored = document::read(&*self.inner.store, &keys::run_end(run)).await?;
        Ok(stored.map(|stored| stored.document))
    }

    /// Deletes ended runs beyond the number that is kept, oldest first, and plans whose run was
    /// never recorded.
    async fn forget_old_runs(&self) -> Result<(), ServiceError> {
        self.forget_unrecorded_plans().await?;
        let over: Vec<RunId> = document::keys_under(&*self.inner.store, keys::RUN_ENDS)
            .await?
            .iter()
            .filter_map(|key| keys::parse_run_end(key))
            .collect();
        for run in over.iter().take(over.len().saturating_sub(RUNS_KEPT)) {
            // A plan that cannot be read must not keep new runs from being created.
            if let Ok(plan) = self.inner.plan(*run).await {
                self.inner.links.plans.unpin(*run, &plan).await?;
            }
            let transaction = Transaction::new()
                .delete(keys::run_record(*run))
                .delete(keys::run_end(*run))
                .delete_prefix(keys::run_plan_prefix(*run))
                .delete_prefix(keys::run_log_prefix(*run))
                .delete_prefix(keys::run_requests(*run));
            settle(&*self.inner.store, transaction).await?;
        }
        Ok(())
    }

    /// Deletes plans of servers that died before they recorded the run, and the holds on their
    /// catalogs. Another server may be about to record a young one.
    async fn forget_unrecorded_plans(&self) -> Result<(), ServiceError> {
        let store = &*self.inner.store;
        let plans = document::keys_under(store, keys::RUN_PLANS).await?;
        let runs: BTreeSet<RunId> = (plans.iter())
            .filter_map(|key| keys::parse_run_plan(key))
            .filter(|run| is_older_than(*run, self.inner.clock.now(), UNRECORDED))
            .collect();
        for run in runs {
            if store.get(&keys::run_record(run)).await?.is_some() {
                continue;
            }
            // A plan that was not written completely has no holds yet.
            if let Ok(plan) = self.inner.plan(run).await {
                self.inner.links.plans.unpin(run, &plan).await?;
            }
            let transaction = Transaction::new()
                .when(Compare::Absent(keys::run_record(run)))
                .delete_prefix(keys::run_plan_prefix(run));
            settle(store, transaction).await?;
        }
        Ok(())
    }
}

/// Returns whether a run's id was created longer ago than this.
fn is_older_than(run: RunId, now: jiff::Timestamp, age: Duration) -> bool {
    let created = run.0.get_timestamp().map(|time| time.to_unix());
    let created = created.and_then(|(seconds, _)| i64::try_from(seconds).ok());
    created.is_none_or(|created| now.as_second().saturating_sub(created) > age.as_secs() as i64)
}

fn purpose(record: &RunRecord) -> PlanPurpose {
    if record.completes_earlier_plan() {
        PlanPurpose::Resume
    } else {
        PlanPurpose::NewRun
    }
}

/// Returns an error that names the nodes whose part of a plan is no longer valid.
fn refuse(message: &str, stale: &[StaleNode], hint: &str) -> Result<(), ServiceError> {
    if stale.is_empty() {
        return Ok(());
    }
    let mut message = format!("{message}:");
    for StaleNode { node, reason } in stale.iter().take(NAMED_NODES) {
        message.push_str(&format!("\n  {node}: {reason}"));
    }
    if stale.len() > NAMED_NODES {
        message.push_str(&format!("\n  and {} more nodes", stale.len() - NAMED_NODES));
    }
    Err(ServiceError::conflict(message, hint))
}

impl Inner {
    async fn plan(&self, run: RunId) -> Result<RunPlan, ServiceError> {
        let chunks = document::read_all(&*self.store, &keys::run_plan_prefix(run)).await?;
        let text: Vec<u8> = chunks
            .iter()
            .flat_map(|chunk| chunk.value.iter().copied())
            .collect();
        serde_json::from_slice(&text).map_err(|source| ServiceError::Document {
            key: keys::run_plan_prefix(run),
            source,
        })
    }
}

fn no_such_run(id: &str) -> ServiceError {
    ServiceError::NotFound {
        what: format!("run `{id}`"),
        hint: Some("list the runs with `bunraku run list`".to_owned()),
    }
}

#[cfg(test)]
mod tests;
