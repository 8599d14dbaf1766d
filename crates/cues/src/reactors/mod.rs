//! Reactors: rules from an environment's code that fire triggers or start ordered runs when
//! something happens: a resource fails, a run ends, a node joins or is lost, a fact changes, a
//! release is created, a hook is called.
//!
//! An event is stored in the transaction in which it happens (`inbox.rs`), and
//! removed in the transaction that announces the trigger (`react.rs`): a server
//! that dies in between loses nothing and repeats nothing. The trigger service
//! then handles the firing, with the chain of the run that it came from, so that
//! loops end as they do between nodes.
//!
//! Rule: a rule sees only events of its own environment, and starts runs only there.
//! Absent: planning and starting ordered runs. They are announced here (`announced_run.rs`) and
//! started by the service of ordered runs (`orchestrate`).

mod announced_run;
mod hook;
mod hosts;
mod inbox;
mod labels;
mod later;
mod matching;
mod react;
mod rules;
mod run_rule;
mod seen_alerts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, FactSetId, NodeName};
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::reactors::{
    Reactor, ReactorEvent, ReactorStatus, ReactorVerdict, TestReactors,
};
use tokio_util::sync::CancellationToken;

use crate::due;
use crate::triggers::HeldFirings;
pub use announced_run::AnnouncedRun;
use bunraku_control::clock::Clock;
use bunraku_control::facts::FactsChanged;
use bunraku_control::nodes;
use bunraku_control::{
    Facts, FindNodes, Metrics, Reports, ServiceAudit, ServiceError, document, keys,
};
pub use hook::Proof;
pub use inbox::ReactorInbox;
pub use rules::read_all;

/// The delay before a retry after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);

/// The handle on the service.
#[derive(Clone)]
pub struct Reactors {
    store: SharedStore,
    clock: Clock,
    inbox: ReactorInbox,
    links: ReactorLinks,
    audit: ServiceAudit,
}

/// The services that rules ask, and the metrics that they count in.
#[derive(Clone)]
pub struct ReactorLinks {
    pub facts: Facts,
    pub reports: Reports,
    pub find_nodes: Arc<dyn FindNodes>,
    pub metrics: Arc<Metrics>,
}

impl Reactors {
    pub fn new(store: SharedStore, clock: Clock, inbox: ReactorInbox, links: ReactorLinks) -> Self {
        Self {
            store,
            clock,
            inbox,
            links,
            audit: ServiceAudit::default(),
        }
    }

    /// Records changes in this audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: impl Into<ServiceAudit>) -> Self {
        self.audit = audit.into();
        self
    }

    /// Runs until cancelled. Every server does this; transactions ensure that
    /// each event is processed once.
    pub async fn run(&self, shutdown: CancellationToken) {
        let events = due::each_entry(&self.store, keys::REACTOR_EVENTS, |key| async move {
            self.react(&key).await
        });
        let later = due::when_due(&self.store, keys::REACTOR_LATER, || self.do_due());
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.inbox.follow(self.store.clone()) => {}
            () = events => {}
            () = later => {}
        }
    }

    /// Returns every rule and the firings that its limits hold back.
    pub async fn list(&self) -> Result<Vec<ReactorStatus>, ServiceError> {
        let mut all = Vec::new();
        for (environment, rules) in self.inbox.all() {
            for reactor in rules.iter() {
                all.push(self.status(&environment, reactor).await?);
            }
        }
        Ok(all)
    }

    async fn status(
        &self,
        environment: &EnvironmentName,
        reactor: &Reactor,
    ) -> Result<ReactorStatus, ServiceError> {
        let prefix = keys::reactor_held_of(environment, &reactor.name);
        let (mut held, mut last) = (0, None);
        for entry in document::read_all(&*self.store, &prefix).await? {
            let part: HeldFirings = document::decode(&entry)?;
            held += part.occurrences.len() as u64;
            last = last.max(part.last);
        }
        Ok(ReactorStatus {
            environment: environment.clone(),
            reactor: reactor.clone(),
            held,
            last,
        })
    }

    /// Returns each rule's verdict on an event. Fires nothing.
    pub async fn test(&self, request: &TestReactors) -> Result<Vec<ReactorVerdict>, ServiceError> {
        let event = &request.event;
        let environment = match (&request.environment, &event.node) {
            (Some(environment), _) => Some(environment.clone()),
            (None, Some(node)) => {
                let found = nodes::environment_of(&*self.store, node).await?;
                Some(found.ok_or_else(|| ServiceError::no_such_node(node))?)
            }
            (None, None) => None,
        };
        let mut verdicts = Vec::new();
        for (of, rules) in self.inbox.all() {
            if environment
                .as_ref()
                .is_some_and(|environment| *environment != of)
            {
                continue;
            }
            for rule in rules.iter() {
                verdicts.push(self.decide(&of, rule, event).await?);
            }
        }
        Ok(verdicts)
    }

    async fn decide(
        &self,
        environment: &EnvironmentName,
        rule: &Reactor,
        event: &ReactorEvent,
    ) -> Result<ReactorVerdict, ServiceError> {
        let mismatch = matching::mismatch(rule, event);
        let mut found = hosts::HostsOfEvent::default();
        if mismatch.is_none() {
            found = self.hosts_of(environment, rule, event).await?;
            if let Some(query) = &rule.query {
                found.extend(hosts::HostsOfEvent {
                    hosts: self.links.find_nodes.nodes_matching(query).await?,
                    tried: Vec::new(),
                });
            }
        }
        let labels = match mismatch {
            None => labels::labels_of(rule, event),
            Some(_) => BTreeMap::new(),
        };
        Ok(ReactorVerdict {
            environment: environment.clone(),
            name: rule.name.clone(),
            mismatch,
            trigger: rule.trigger.clone(),
            hosts: found.hosts,
            tried: found.tried,
            reason: Some(react::reason_of(rule, event)),
            run: rule.run.clone(),
            labels,
        })
    }
}

/// Records changed facts for the reactors, after another listener.
pub struct FactNews {
    pub first: Arc<dyn FactsChanged>,
    pub inbox: ReactorInbox,
}

#[async_trait]
impl FactsChanged for FactNews {
    async fn facts_changed(
        &self,
        transaction: Transaction,
        node: &NodeName,
        fact_set: FactSetId,
    ) -> Result<Transaction, ServiceError> {
        let transaction = self
            .first
            .facts_changed(transaction, node, fact_set)
            .await?;
        Ok(self.inbox.facts(transaction, node, fact_set))
    }
}
