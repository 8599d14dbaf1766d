//! Simulates the runs of an agent and the delivery of its events.
//!
//! Each step is counted, so that an agent can be killed at any step.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_agent::{
    DeliveryError, PreparedRun, Recorder, ReportsTo, RunDescription, RunEnd, RunMethod, RunOrder,
    RunStartError,
};
use bunraku_control::ServiceError;
use bunraku_model::{Catalog, NodeName, NodeRunId};
use bunraku_server::Services;
use bunraku_wire::api::{
    EventStatus, ReportBatch, ReportEvent, ReportReceipt, ResourceEvent, RunEnding, Target,
};
use bunraku_wire::client::BackOff;
use tokio_util::sync::CancellationToken;

use super::Agent;
use crate::bug::Bug;
use crate::servers::Answer;

/// The number of requests before a run gives up.
const TRIES: usize = 4;

/// Applies targets from a server, without a machine.
pub(crate) struct SimulatedRuns(pub(crate) Agent);

struct PreparedSimulation {
    agent: Agent,
    run: NodeRunId,
    order: RunOrder,
    target: Target,
    catalog: Catalog,
}

#[async_trait]
impl RunMethod for SimulatedRuns {
    fn name(&self) -> &'static str {
        "engine"
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError> {
        let agent = &self.0;
        agent.strike.step().await;
        let target = match order.planned_catalog() {
            Some(planned) => planned.clone().into(),
            None => newest_target(agent).await?,
        };
        agent.strike.step().await;
        let mut catalog = None;
        for _ in 0..TRIES {
            if catalog.is_none() {
                catalog = download(agent, &target).await;
            }
        }
        let catalog = catalog.ok_or_else(|| RunStartError::new("the catalog cannot be fetched"))?;
        agent.strike.step().await;
        Ok(Box::new(PreparedSimulation {
            agent: agent.clone(),
            run: order.id,
            order: order.clone(),
            target,
            catalog,
        }))
    }
}

async fn newest_target(agent: &Agent) -> Result<Target, RunStartError> {
    let mut known = None;
    for _ in 0..TRIES {
        known = known.or(agent.target().await);
    }
    let target = known.ok_or_else(|| RunStartError::new("no server answers"))?;
    Ok(target.stored.target.clone())
}

async fn download(agent: &Agent, target: &Target) -> Option<Catalog> {
    let id = target.catalog;
    let asked = agent.servers.ask(move |services, answer| async move {
        if let Ok(catalog) = services.catalogs.get(id).await {
            answer.give(catalog);
        }
    });
    let catalog: Catalog = asked.await?;
    assert_eq!(catalog.id(), id, "a catalog is what its id says");
    Some(catalog)
}

#[async_trait]
impl PreparedRun for PreparedSimulation {
    fn describe(&self) -> RunDescription {
        RunDescription {
            environment: Some(self.target.environment.clone()),
            release: Some(self.target.release),
            catalog: Some(self.target.catalog),
            resources: self.catalog.resources.len() as u64,
            ..RunDescription::new(self.order.mode)
        }
    }

    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, _stop: CancellationToken) -> RunEnd {
        let (agent, run) = (&self.agent, self.run);
        agent.checker.record_start(&agent.node, run);
        agent.cues.step_begins(&agent.node, &self.order.causes);
        let mut failed = false;
        for resource in &self.catalog.resources {
            tokio::time::sleep(agent.servers.chance.up_to(Duration::from_millis(700))).await;
            agent.strike.step().await;
            let title = resource.title.clone();
            agent.checker.recorded(run, &title);
            // One resource at most, so that a run has at most one event for the reactor.
            let fails = agent.has_cues && !failed && agent.servers.chance.happens(5);
            failed |= fails;
            recorder.record(event(title, fails, agent));
        }
        agent.maybe_fire(&self.order.causes).await;
        agent.strike.step().await;
        agent.checker.finished(&agent.node, self.target.catalog);
        if !failed {
            agent.cues.step_succeeds(&agent.node, &self.order.causes);
        }
        RunEnd {
            ending: if failed {
                RunEnding::Failed
            } else {
                RunEnding::Succeeded
            },
            failure: None,
            message: None,
        }
    }
}

fn event(title: String, fails: bool, agent: &Agent) -> ReportEvent {
    let status = if fails {
        EventStatus::Failed
    } else {
        EventStatus::Changed
    };
    ReportEvent::Resource(Box::new(ResourceEvent::new(
        agent.servers.clock.now(),
        "File",
        title,
        status,
    )))
}

/// Delivers events to a server.
pub(crate) struct EventDelivery(pub(crate) Agent);

#[async_trait]
impl ReportsTo for EventDelivery {
    async fn post(
        &self,
        run: NodeRunId,
        batch: ReportBatch,
    ) -> Result<ReportReceipt, DeliveryError> {
        let agent = &self.0;
        agent.strike.step().await;
        let (node, bug) = (agent.node.clone(), agent.bug);
        let asked = agent.servers.ask(move |services, answer| {
            take(services, answer, node.clone(), run, batch.clone(), bug)
        });
        let taken = asked.await;
        agent.strike.step().await;
        taken.unwrap_or_else(|| Err(DeliveryError::Away("nobody answers".to_owned())))
    }

    fn wait(&self, back_off: BackOff, failures: u32) -> Duration {
        let fraction = self.0.servers.chance.below(1_000) as f64 / 1_000.0;
        back_off.wait(failures, fraction)
    }

    /// Syncs on this thread: another thread would make runs irreproducible.
    async fn sync(&self, file: File) -> bool {
        file.sync_data().is_ok()
    }
}

/// Accepts events as the server's route does.
async fn take(
    services: Services,
    answer: Answer<Result<ReportReceipt, DeliveryError>>,
    node: NodeName,
    run: NodeRunId,
    mut batch: ReportBatch,
    bug: Option<Bug>,
) {
    match bug {
        // The others are elsewhere.
        None
        | Some(
            Bug::FiringForgotten
            | Bug::RequestsForgotten
            | Bug::OrderIgnored
            | Bug::RecordedTooLate,
        ) => {}
        // Accepts any batch as the next one.
        Some(Bug::NumbersIgnored) => {
            let shown = services.reports.show(&node, run).await;
            batch.first = shown.map_or(0, |report| report.next);
        }
        Some(Bug::AnsweredTooEarly) => {
            let next = batch.first + batch.events.len() as u64;
            let finished = matches!(batch.events.last(), Some(ReportEvent::Finished(_)));
            answer.give(Ok(ReportReceipt { next, finished }));
            let _ = services.reports.take(&node, run, batch).await;
            return;
        }
    }
    match services.reports.take(&node, run, batch).await {
        Ok(taken) => {
            answer.give(Ok(taken.receipt));
            if taken.needs_settling {
                let _ = services.reports.settle(&node, run).await;
            }
        }
        Err(ServiceError::Gap { wanted }) => answer.give(Err(DeliveryError::Gap { wanted })),
        Err(ServiceError::Invalid { message, .. }) => {
            answer.give(Err(DeliveryError::NotUnderstood(message)));
        }
        Err(error) => answer.give(Err(DeliveryError::Away(error.to_string()))),
    }
}
