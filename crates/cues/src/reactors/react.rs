//! From an event to its effects, in one transaction.

use bunraku_model::{EnvironmentName, FiringId, NodeName};
use bunraku_store::{Swap, Transaction, compare_and_swap};
use bunraku_wire::api::reactors::{Reactor, ReactorEvent, ReactorEventKind};
use bunraku_wire::api::triggers::{FireTrigger, TriggerEvent, TriggerLimits, TriggerNews};
use bunraku_wire::api::{Cause, TriggerCause};
use serde_json::json;
use uuid::Uuid;

use super::inbox::{self, Entry, fields};
use super::{Reactors, matching};
use crate::triggers::chain::{self, ChainEffect};
use crate::triggers::{AnnouncedFiring, HeldFirings, HoldDecision, limits_hold};
use bunraku_control::{ServiceError, document, keys, nodes};

/// The number of rules that one transaction processes.
const PER_TRANSACTION: usize = 20;

/// The origin of an event.
#[derive(Default)]
struct Origin {
    causes: Vec<Cause>,
    changed: bool,
}

/// One rule, and all events of an entry that it matches.
struct Match<'a> {
    rule: &'a Reactor,
    hosts: Vec<NodeName>,
    reason: String,
    count: usize,
}

impl Reactors {
    /// Processes one entry, and removes it.
    pub(super) async fn react(&self, key: &str) -> Result<(), ServiceError> {
        while let Some(matched) = self.react_once(key).await? {
            for (environment, rule, count) in matched {
                self.metrics.reactor_matched(&environment, &rule, count);
            }
        }
        Ok(())
    }

    /// Processes some rules of an entry. Returns those that matched, and `None` once nothing is
    /// left: another server may have been faster.
    async fn react_once(
        &self,
        key: &str,
    ) -> Result<Option<Vec<(EnvironmentName, String, usize)>>, ServiceError> {
        compare_and_swap(&*self.store, |_| async move {
            let Some(found) = self.store.get(key).await? else {
                return Ok(Swap::Done(None));
            };
            let entry = inbox::read(&found).unwrap_or_default();
            let transaction = Transaction::new().when_unchanged(key, Some(&found));
            let Some((environment, happenings)) = self.events(&entry).await? else {
                return Ok(Swap::Write(transaction.delete(key), Some(Vec::new())));
            };
            let rules = self.inbox.of(&environment);
            let mut matches = matches_of(&rules, &entry, &happenings);
            let rest = matches.len() > PER_TRANSACTION;
            matches.truncate(PER_TRANSACTION);
            let origin = self.origin(&entry).await?;
            let mut transaction = if rest {
                let next = Entry {
                    after: matches.last().map(|found| found.rule.name.clone()),
                    ..entry.clone()
                };
                transaction.put(key, document::encode(&next))
            } else {
                transaction.delete(key)
            };
            for found in &matches {
                transaction = self
                    .follow_up(transaction, &environment, &entry, found, &origin)
                    .await?;
            }
            let matched = (matches.iter())
                .map(|found| (environment.clone(), found.rule.name.clone(), found.count))
                .collect();
            Ok(Swap::Write(transaction, Some(matched)))
        })
        .await
    }

    /// Returns the events of an entry, with the data that had to be looked up.
    async fn events(
        &self,
        entry: &Entry,
    ) -> Result<Option<(EnvironmentName, Vec<ReactorEvent>)>, ServiceError> {
        let environment = match (&entry.environment, &entry.node) {
            (Some(environment), _) => Some(environment.clone()),
            (None, Some(node)) => nodes::environment_of(&*self.store, node).await?,
            (None, None) => None,
        };
        let Some(environment) = environment else {
            return Ok(None);
        };
        let (Some(fact_set), Some(node)) = (&entry.fact_set, &entry.node) else {
            return Ok(Some((environment, entry.happenings.clone())));
        };
        let difference = self
            .facts
            .difference(node, None, Some(&fact_set.to_string()))
            .await;
        let changes = match difference {
            Ok(difference) => difference.changes,
            // A node's first facts are not a change, and facts this old are gone.
            Err(ServiceError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let happenings = changes.into_iter().map(|change| ReactorEvent {
            event: ReactorEventKind::FactChanged,
            node: Some(node.clone()),
            fields: fields(json!({
                "fact": change.path,
                "before": change.before,
                "after": change.after,
            })),
        });
        Ok(Some((environment, happenings.collect())))
    }

    /// Returns the causes of the run in which the event happened. Events outside
    /// of a run are attributed to the node's newest run, so that loops of runs
    /// whose effects start new runs end, too.
    async fn origin(&self, entry: &Entry) -> Result<Origin, ServiceError> {
        let Some(node) = &entry.node else {
            return Ok(Origin::default());
        };
        let head = match entry.run {
            Some(run) => self.reports.head_of(node, run).await?,
            None => self.reports.newest_of(node).await?,
        };
        Ok(head.map_or_else(Origin::default, |head| Origin {
            changed: entry.run.is_none() || head.counts.changed > 0,
            causes: head.started.causes,
        }))
    }

    /// Adds one rule's effects to the transaction.
    async fn follow_up(
        &self,
        transaction: Transaction,
        environment: &EnvironmentName,
        entry: &Entry,
        found: &Match<'_>,
        origin: &Origin,
    ) -> Result<Transaction, ServiceError> {
        if found.rule.for_seconds.is_some() && entry.only.is_none() {
            return Ok(self.wait(transaction, environment, entry, found.rule));
        }
        let rule = found.rule;
        let (id, now) = (FiringId(Uuid::now_v7()), self.clock.now());
        let request = FireTrigger {
            id,
            hosts: Vec::new(),
            query: None,
            ttl: rule.ttl,
            reason: Some(found.reason.clone()),
            deadline_seconds: None,
            causes: origin.causes.clone(),
            changed: origin.changed,
        };
        let by = by(environment, rule);
        let causes = match chain::continue_chains(&rule.trigger, entry.node.as_ref(), &request, now)
        {
            ChainEffect::On(causes) => causes,
            ChainEffect::Stopped { why, chain } => {
                self.metrics.trigger_stopped(why);
                let event = TriggerEvent {
                    trigger: rule.trigger.clone(),
                    at: now,
                    what: TriggerNews::Stopped { by, why, chain },
                };
                let key = keys::trigger_event(Uuid::now_v7());
                return Ok(transaction.put(key, document::encode(&event)));
            }
        };
        let limits = TriggerLimits::from(&rule.limits);
        if !limits_hold(&limits) {
            let announced = announced(environment, rule, found.hosts.clone(), causes);
            return Ok(announced.put_in(transaction));
        }
        let node = entry.node.as_ref().filter(|_| rule.limits.per_node);
        let key = keys::reactor_held(environment, &rule.name, node);
        let known = document::read::<HeldFirings>(&*self.store, &key).await?;
        let entry = known.as_ref().map(|known| known.entry.clone());
        let mut held = known.map(|known| known.document).unwrap_or_default();
        for _ in 0..found.count.saturating_sub(1) {
            held.add(Vec::new(), Vec::new(), &limits, now);
        }
        held.add(found.hosts.clone(), causes, &limits, now);
        held.by = by;
        let transaction = transaction.when_unchanged(&key, entry.as_ref());
        Ok(match held.due(&limits, now) {
            HoldDecision::Now => self.announce_held(transaction, environment, rule, &key, held),
            HoldDecision::At(_) | HoldDecision::NotYet => {
                transaction.put(key, document::encode(&held))
            }
        })
    }

    /// Announces a firing that was held back.
    pub(super) fn announce_held(
        &self,
        transaction: Transaction,
        environment: &EnvironmentName,
        rule: &Reactor,
        key: &str,
        held: HeldFirings,
    ) -> Transaction {
        let transaction = match rule.limits.interval_seconds {
            Some(_) => {
                let released = HeldFirings::released(self.clock.now());
                transaction.put(key, document::encode(&released))
            }
            None => transaction.delete(key),
        };
        announced(environment, rule, held.hosts, held.causes).put_in(transaction)
    }
}

/// Returns the rules that match an entry, by name, without those already processed.
fn matches_of<'a>(
    rules: &'a [Reactor],
    entry: &Entry,
    happenings: &[ReactorEvent],
) -> Vec<Match<'a>> {
    let open = rules.iter().filter(|rule| {
        entry.after.as_ref().is_none_or(|after| rule.name > *after)
            && entry.only.as_ref().is_none_or(|only| rule.name == *only)
    });
    let mut matches = Vec::new();
    for rule in open {
        let about: Vec<&ReactorEvent> = happenings
            .iter()
            .filter(|happening| matching::mismatch(rule, happening).is_none())
            .collect();
        let Some(first) = about.first() else {
            continue;
        };
        let mut hosts: Vec<NodeName> = about
            .iter()
            .flat_map(|happening| hosts_of(rule, happening))
            .collect();
        hosts.sort();
        hosts.dedup();
        let mut reason = reason_of(rule, first);
        if about.len() > 1 {
            reason.push_str(&format!(", and {} more", about.len() - 1));
        }
        matches.push(Match {
            rule,
            hosts,
            reason,
            count: about.len(),
        });
    }
    matches
}

/// Returns the hosts that a rule names, with fields filled in.
pub(super) fn hosts_of(rule: &Reactor, happening: &ReactorEvent) -> Vec<NodeName> {
    let filled = rule.hosts.iter().filter_map(|host| {
        let name = matching::fill(host, happening)?;
        // A hook may send text that is not a valid name.
        NodeName::new(name).ok()
    });
    filled.collect()
}

/// The reason that is shown with the trigger.
pub(super) fn reason_of(rule: &Reactor, happening: &ReactorEvent) -> String {
    let own = rule.reason.as_ref();
    let own = own.and_then(|reason| matching::fill(reason, happening));
    let text = own.unwrap_or_else(|| {
        let templates = match happening.event {
            ReactorEventKind::Resource => "${type}[${title}] ${status} on ${node}",
            ReactorEventKind::Run => "a run on ${node}: ${ending}",
            ReactorEventKind::NodeLost => "${node} is lost: ${reason}",
            ReactorEventKind::FactChanged => "${fact} of ${node} changed",
            ReactorEventKind::Webhook => "a call to the hook ${hook}",
            ReactorEventKind::Alert => "alert ${alert.labels.alertname} is ${alert.status}",
        };
        let filled = matching::fill(templates, happening);
        filled.unwrap_or_else(|| happening.event.as_str().to_owned())
    });
    text.chars().take(500).collect()
}

pub(super) fn by(environment: &EnvironmentName, rule: &Reactor) -> String {
    format!("reactor {} of {environment}", rule.name)
}

fn announced(
    environment: &EnvironmentName,
    rule: &Reactor,
    hosts: Vec<NodeName>,
    causes: Vec<TriggerCause>,
) -> AnnouncedFiring {
    AnnouncedFiring {
        query: rule.query.clone(),
        environment: Some(environment.clone()),
        deadline_seconds: rule.deadline_seconds,
        ..AnnouncedFiring::new(rule.trigger.clone(), by(environment, rule), hosts, causes)
    }
}
