//! From an event to its effects, in one transaction.

use std::collections::BTreeMap;

use bunraku_model::{EnvironmentName, FiringId, NodeName, RunId};
use bunraku_store::{Swap, Transaction, compare_and_swap};
use bunraku_wire::api::reactors::{Reactor, ReactorEvent, ReactorEventKind};
use bunraku_wire::api::triggers::{FireTrigger, TriggerEvent, TriggerLimits, TriggerNews};
use bunraku_wire::api::{Cause, TriggerCause};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::announced_run::AnnouncedRun;
use super::hosts::HostsOfEvent;
use super::inbox::{self, Entry, fields};
use super::labels::{common, labels_of};
use super::{Reactors, matching};
use crate::triggers::chain::{self, ChainEffect};
use crate::triggers::{AnnouncedFiring, HeldFirings, HoldDecision, limits_hold};
use bunraku_control::{AuditAction, ServiceError, document, keys, nodes};
use bunraku_wire::api::AuditSource;

/// The number of rules that one transaction processes.
const PER_TRANSACTION: usize = 20;
/// The most causes of one match.
const MOST_PARTS: usize = 50;
/// The number of hosts that were not found and that the history names.
const TRIED_NAMED: usize = 20;

/// The origin of an event.
#[derive(Default)]
struct Origin {
    causes: Vec<Cause>,
    changed: bool,
}

/// One rule, and all events of an entry that it matches.
struct Match<'a> {
    rule: &'a Reactor,
    events: Vec<&'a ReactorEvent>,
}

/// The hosts of a match, and the causes of the runs there.
struct MatchedHosts {
    found: HostsOfEvent,
    /// The reason that is shown with the hosts that were not found.
    reason: String,
    parts: Vec<CausePart>,
}

/// The part of a match with its own labels: one alert, or several events without labels.
struct CausePart {
    reason: String,
    labels: BTreeMap<String, String>,
    /// The hosts that it concerns. Empty: all hosts of the match.
    hosts: Vec<NodeName>,
}

impl Reactors {
    /// Processes one entry, and removes it.
    pub(super) async fn react(&self, key: &str) -> Result<(), ServiceError> {
        while let Some(matched) = self.react_once(key).await? {
            for (environment, rule, count) in matched {
                self.links
                    .metrics
                    .reactor_matched(&environment, &rule, count);
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
                .map(|found| {
                    (
                        environment.clone(),
                        found.rule.name.clone(),
                        found.events.len(),
                    )
                })
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
            .links
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
            return Ok(Origin {
                causes: entry.causes.iter().cloned().map(Cause::Trigger).collect(),
                changed: entry.changed,
            });
        };
        let head = match entry.run {
            Some(run) => self.links.reports.head_of(node, run).await?,
            None => self.links.reports.newest_of(node).await?,
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
        let (rule, now) = (found.rule, self.clock.now());
        let matched = self.matched_hosts(environment, found).await?;
        let by = by(environment, rule);
        let mut transaction = transaction;
        if !matched.found.tried.is_empty() {
            let mut tried = matched.found.tried.clone();
            tried.truncate(TRIED_NAMED);
            let news = TriggerNews::NoHosts {
                by: by.clone(),
                reason: Some(matched.reason.clone()),
                tried,
            };
            transaction = recorded(transaction, rule, now, news);
            if matched.found.hosts.is_empty() && rule.query.is_none() {
                return Ok(transaction);
            }
        }
        let id = FiringId(Uuid::now_v7());
        let request = FireTrigger {
            id,
            hosts: Vec::new(),
            query: None,
            ttl: rule.ttl,
            reason: None,
            deadline_seconds: None,
            causes: origin.causes.clone(),
            changed: origin.changed,
        };
        let causes = match chain::continue_chains(&rule.trigger, entry.node.as_ref(), &request, now)
        {
            ChainEffect::On(causes) => matched.causes(&causes),
            ChainEffect::Stopped { why, chain } => {
                self.links.metrics.trigger_stopped(why);
                let news = TriggerNews::Stopped { by, why, chain };
                return Ok(recorded(transaction, rule, now, news));
            }
        };
        let hosts = matched.found.hosts;
        let limits = TriggerLimits::from(&rule.limits);
        if !limits_hold(&limits) {
            let transaction = self.recorded(transaction, environment, rule, &hosts, &causes);
            return Ok(announce(transaction, environment, rule, hosts, causes));
        }
        let node = entry.node.as_ref().filter(|_| rule.limits.per_node);
        let key = keys::reactor_held(environment, &rule.name, node);
        let known = document::read::<HeldFirings>(&*self.store, &key).await?;
        let entry = known.as_ref().map(|known| known.entry.clone());
        let mut held = known.map(|known| known.document).unwrap_or_default();
        for _ in 0..found.events.len().saturating_sub(1) {
            held.add(Vec::new(), Vec::new(), &limits, now);
        }
        held.add(hosts, causes, &limits, now);
        held.by = by;
        let transaction = transaction.when_unchanged(&key, entry.as_ref());
        Ok(match held.due(&limits, now) {
            HoldDecision::Now => self.announce_held(transaction, environment, rule, &key, held),
            HoldDecision::At(_) | HoldDecision::NotYet => {
                transaction.put(key, document::encode(&held))
            }
        })
    }

    /// Finds the hosts of a match, and the labels for each of them.
    async fn matched_hosts(
        &self,
        environment: &EnvironmentName,
        found: &Match<'_>,
    ) -> Result<MatchedHosts, ServiceError> {
        let mut all = HostsOfEvent::default();
        let mut parts: Vec<CausePart> = Vec::new();
        let mut failed = None;
        for event in &found.events {
            let hosts = self.hosts_of(environment, found.rule, event).await?;
            let reason = reason_of(found.rule, event);
            if !hosts.tried.is_empty() {
                failed.get_or_insert_with(|| reason.clone());
            }
            let labels = labels_of(found.rule, event);
            match parts.iter_mut().find(|part| part.labels == labels) {
                Some(part) => part.hosts.extend(hosts.hosts.iter().cloned()),
                None => parts.push(CausePart {
                    reason,
                    labels,
                    hosts: hosts.hosts.clone(),
                }),
            }
            all.extend(hosts);
        }
        // If some hosts are not known yet, everyone gets what all events have in common.
        let shared = found.rule.query.is_some() || found.rule.hosts.is_empty();
        if shared && parts.len() > 1 {
            let labels = common(parts.iter().map(|part| &part.labels));
            parts.truncate(1);
            parts
                .iter_mut()
                .for_each(|part| part.labels.clone_from(&labels));
        }
        if shared || parts.len() == 1 {
            parts.iter_mut().for_each(|part| part.hosts.clear());
        } else {
            parts.retain(|part| !part.hosts.is_empty());
        }
        parts.truncate(MOST_PARTS);
        let more = found.events.len().saturating_sub(1);
        if let Some(first) = parts.first_mut().filter(|_| more > 0) {
            first.reason.push_str(&format!(", and {more} more"));
        }
        Ok(MatchedHosts {
            found: all,
            reason: failed.unwrap_or_default(),
            parts,
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
        let transaction = self.recorded(transaction, environment, rule, &held.hosts, &held.causes);
        announce(transaction, environment, rule, held.hosts, held.causes)
    }

    /// Adds the record of a firing.
    fn recorded(
        &self,
        transaction: Transaction,
        environment: &EnvironmentName,
        rule: &Reactor,
        hosts: &[NodeName],
        causes: &[TriggerCause],
    ) -> Transaction {
        let hosts: Vec<&str> = hosts.iter().map(NodeName::as_str).collect();
        let reason = causes.iter().find_map(|cause| cause.reason.as_deref());
        let action = match &rule.run {
            None => "fire-trigger",
            Some(_) => "create-run",
        };
        let action = AuditAction::new(action)
            .on("trigger", &rule.trigger)
            .detail("environment", environment.as_str())
            .detail("hosts", hosts)
            .detail("query", rule.query.clone())
            .because(reason)
            .by(by(environment, rule), AuditSource::Reactor);
        self.audit.record_in(transaction, action)
    }
}

impl MatchedHosts {
    /// Returns one cause for each chain and part.
    fn causes(&self, chains: &[TriggerCause]) -> Vec<TriggerCause> {
        let of = |part: &CausePart, chain: &TriggerCause| TriggerCause {
            reason: Some(part.reason.clone()),
            labels: part.labels.clone(),
            hosts: part.hosts.clone(),
            ..chain.clone()
        };
        let parts = self.parts.iter();
        let all = parts.flat_map(|part| chains.iter().map(|chain| of(part, chain)));
        all.take(MOST_PARTS).collect()
    }
}

/// Adds an entry to the history of the rule's trigger.
fn recorded(
    transaction: Transaction,
    rule: &Reactor,
    at: Timestamp,
    what: TriggerNews,
) -> Transaction {
    let event = TriggerEvent {
        trigger: rule.trigger.clone(),
        at,
        what,
    };
    transaction.put(
        keys::trigger_event(Uuid::now_v7()),
        document::encode(&event),
    )
}

/// Returns the rules that match an entry, by name, without those already processed.
fn matches_of<'a>(
    rules: &'a [Reactor],
    entry: &Entry,
    happenings: &'a [ReactorEvent],
) -> Vec<Match<'a>> {
    let open = rules.iter().filter(|rule| {
        entry.after.as_ref().is_none_or(|after| rule.name > *after)
            && entry.only.as_ref().is_none_or(|only| rule.name == *only)
    });
    let matches = open.map(|rule| Match {
        rule,
        events: (happenings.iter())
            .filter(|happening| matching::mismatch(rule, happening).is_none())
            .collect(),
    });
    matches.filter(|found| !found.events.is_empty()).collect()
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
            ReactorEventKind::NodeJoined => "${node} joined",
            ReactorEventKind::RunFinished => "run ${run} of ${by}: ${outcome}",
            ReactorEventKind::ReleaseMade => "release ${release} by ${by}",
        };
        let filled = matching::fill(templates, happening);
        filled.unwrap_or_else(|| happening.event.as_str().to_owned())
    });
    text.chars().take(500).collect()
}

pub(super) fn by(environment: &EnvironmentName, rule: &Reactor) -> String {
    format!("reactor {} of {environment}", rule.name)
}

/// Adds the trigger or the ordered run of a rule.
fn announce(
    transaction: Transaction,
    environment: &EnvironmentName,
    rule: &Reactor,
    hosts: Vec<NodeName>,
    causes: Vec<TriggerCause>,
) -> Transaction {
    let by = by(environment, rule);
    if let Some(run) = &rule.run {
        let announced = AnnouncedRun {
            id: RunId(Uuid::now_v7()),
            environment: environment.clone(),
            trigger: rule.trigger.clone(),
            by,
            run: run.clone(),
            hosts,
            query: rule.query.clone(),
            causes,
        };
        return announced.put_in(transaction);
    }
    let announced = AnnouncedFiring {
        query: rule.query.clone(),
        environment: Some(environment.clone()),
        deadline_seconds: rule.deadline_seconds,
        ..AnnouncedFiring::new(rule.trigger.clone(), by, hosts, causes)
    };
    announced.put_in(transaction)
}
