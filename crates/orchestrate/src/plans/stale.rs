//! Whether a plan is still valid: what changed since it was made, for which node.
//!
//! A new run needs a plan that is exactly what the nodes would apply now. A run that has begun, and
//! one that is resumed, complete *their* plan: a newer release does not stop them. But no run
//! applies a catalog that was rolled back, nor one that its node may no longer enforce, nor does a
//! resumed run take a node back to an older release than the one that the node has applied since.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_control::ServiceError;
use bunraku_model::NodeName;
use bunraku_plan::run::OrderedRunSubject;
use bunraku_plan::{PlannedCatalog, PlannedWork, RunPlan, StaleNode, StepIndex};
use bunraku_wire::api::{RunMode, Target};

use super::Plans;

/// The run that a plan is checked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlanPurpose {
    /// A new run does exactly what the nodes would do now.
    NewRun,
    /// A resumed run completes its plan.
    Resume,
}

impl Plans {
    /// Returns the nodes for which a run would not do what this plan says. Only steps outside of
    /// `done` count.
    pub(crate) async fn stale_nodes(
        &self,
        plan: &RunPlan,
        done: &[StepIndex],
        purpose: PlanPurpose,
    ) -> Result<Vec<StaleNode>, ServiceError> {
        let now = self.work_now(plan, false).await?;
        let mut stale = Vec::new();
        for (node, planned) in open_work(plan, done) {
            let now = now.get(node);
            let reason = match purpose {
                PlanPurpose::NewRun => self.changed(plan, node, planned, now).await?,
                PlanPurpose::Resume => self.impossible(node, planned, now).await?,
            };
            stale.extend(reason.map(|reason| StaleNode {
                node: node.clone(),
                reason,
            }));
        }
        Ok(stale)
    }

    /// Returns why a new run of the plan would not do on the node what the plan says.
    async fn changed(
        &self,
        plan: &RunPlan,
        node: &NodeName,
        planned: &PlannedWork,
        now: Option<&PlannedWork>,
    ) -> Result<Option<String>, ServiceError> {
        let Some(now) = now else {
            return Ok(None);
        };
        match (now.is_same(planned), &plan.subject, planned) {
            (true, OrderedRunSubject::Release { .. }, PlannedWork::Catalog(catalog)) => {
                self.newer_release(node, catalog).await
            }
            (true, ..) => Ok(None),
            (false, ..) => Ok(Some(difference(planned, now))),
        }
    }

    /// Returns why a resumed run can no longer complete the plan on the node.
    async fn impossible(
        &self,
        node: &NodeName,
        planned: &PlannedWork,
        now: Option<&PlannedWork>,
    ) -> Result<Option<String>, ServiceError> {
        match (planned, now) {
            (PlannedWork::Catalog(_), Some(now @ PlannedWork::Method { .. })) => {
                Ok(Some(difference(planned, now)))
            }
            (PlannedWork::Catalog(catalog), _) => match self.prohibited(node, catalog).await? {
                None => self.overtaken(node, catalog).await,
                prohibited => Ok(prohibited),
            },
            (_, Some(now)) if !now.is_same(planned) => Ok(Some(difference(planned, now))),
            _ => Ok(None),
        }
    }

    /// Returns why a node must not apply a planned catalog although its run has begun.
    pub(crate) async fn prohibited(
        &self,
        node: &NodeName,
        planned: &PlannedCatalog,
    ) -> Result<Option<String>, ServiceError> {
        let target = self.target(node).await?;
        if target
            .as_ref()
            .is_some_and(|target| is_same(target, planned))
        {
            return Ok(None);
        }
        let (environment, release) = (&planned.environment, planned.release);
        if let Some(withdrawn) = self.releases.withdrawal(environment, release).await? {
            return Ok(Some(withdrawn));
        }
        Ok(target.and_then(|target| restriction(&target, planned)))
    }

    /// Returns the newer release that assigns another catalog to the node.
    async fn newer_release(
        &self,
        node: &NodeName,
        planned: &PlannedCatalog,
    ) -> Result<Option<String>, ServiceError> {
        let target = self.target(node).await?;
        let newer = target.filter(|target| {
            !is_same(target, planned) && target.release > planned.release
                || target.environment != planned.environment
        });
        Ok(newer.map(|target| {
            let now = PlannedWork::Catalog(target.into());
            difference(&PlannedWork::Catalog(planned.clone()), &now)
        }))
    }

    /// Returns the newer release that the node has applied since.
    async fn overtaken(
        &self,
        node: &NodeName,
        planned: &PlannedCatalog,
    ) -> Result<Option<String>, ServiceError> {
        let Some(head) = self.reports.newest_applied(node).await? else {
            return Ok(None);
        };
        let started = head.started;
        let newer = started.catalog != Some(planned.catalog)
            && started.environment.as_ref() == Some(&planned.environment);
        let release = started.release.filter(|release| *release > planned.release);
        Ok(release.filter(|_| newer).map(|release| {
            format!(
                "it has applied release {release} since, and the plan says release {}",
                planned.release
            )
        }))
    }
}

/// Returns the work of each node that still has to run.
fn open_work<'p>(plan: &'p RunPlan, done: &[StepIndex]) -> BTreeMap<&'p NodeName, &'p PlannedWork> {
    let done: BTreeSet<&StepIndex> = done.iter().collect();
    let steps = (0..).map(StepIndex).zip(&plan.steps);
    let open = steps.filter(|(index, _)| !done.contains(index));
    open.filter_map(|(_, step)| Some((&step.node, step.work.as_ref()?)))
        .collect()
}

fn difference(planned: &PlannedWork, now: &PlannedWork) -> String {
    format!("the plan says {planned}; it has {now} now")
}

fn is_same(target: &Target, planned: &PlannedCatalog) -> bool {
    target.catalog == planned.catalog
        && target.environment == planned.environment
        && target.mode == planned.mode
}

/// Returns how the node's current target prohibits what was planned.
fn restriction(target: &Target, planned: &PlannedCatalog) -> Option<String> {
    if target.environment != planned.environment {
        return Some(format!(
            "it belongs to environment {} now, and the plan says {}",
            target.environment, planned.environment
        ));
    }
    let only_noop = target.mode == RunMode::Noop && planned.mode == RunMode::Enforce;
    only_noop.then(|| format!("release {} allows only noop runs on it", target.release))
}
