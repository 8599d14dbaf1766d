//! The one server that applies releases and creates the automatic ones.
//!
//! It follows compiled catalogs, heads, holds and policies, and gathers
//! changes: compiling ten thousand nodes gives a handful of releases. All of
//! its work is correct even if two servers do it. So losing the lead in the
//! middle, or dying, needs no special handling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::{Change, Follow, FollowEvent};
use bunraku_wire::api::{ReleaseKind, ReleasePolicy, RunMode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apply::{ApplyOutcome, Extent};
use super::compiled_catalogs::{self, HeldCatalog, HeldCatalogs};
use super::create::{Proposal, ProposalOutcome, next_number, overlaid};
use super::document::ReleaseMap;
use super::join_rules::{JoinCoverage, JoinRule, JoinRules};
use super::joins::{CompileAtCode, CompiledNodes, JoinCompiles, JoinStep};
use super::policy;
use super::{ReleaseOptions, Releases};
use crate::compiles::CompileFailed;
use bunraku_control::leader::Leadership;
use bunraku_control::{ServiceError, document, keys};

/// Delay before a failed operation is retried.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);
/// Time for concurrent changes to become visible.
const TURN: std::time::Duration = std::time::Duration::from_millis(50);
/// Interval of checks whether rolled-back catalogs are of newer code by now. A
/// compile that changes nothing leaves no other trace to follow.
const ROLLED_BACK_CHECK: std::time::Duration = std::time::Duration::from_secs(10);

pub struct ReleaseWorker {
    pub releases: Releases,
    /// Compiles nodes that join from released code.
    pub compiler: Arc<dyn CompileAtCode>,
    /// The leader's name, for display.
    pub name: String,
}

/// The next time to check each environment.
#[derive(Default)]
struct CheckSchedule {
    waiting: BTreeMap<EnvironmentName, DueCheck>,
}

#[derive(Clone, Copy)]
struct DueCheck {
    first: Instant,
    at: Instant,
}

/// The leader's state.
#[derive(Default)]
pub(super) struct LeaderState {
    held: BTreeMap<NodeName, HeldCatalog>,
    /// The newest failure of nodes whose newest compile failed.
    failed: BTreeMap<NodeName, CompileFailed>,
    pub(super) joins: JoinCompiles,
    /// Nodes that were compiled in their environment for the first time since
    /// this leader started.
    pub(super) appeared: BTreeSet<NodeName>,
    environments: BTreeSet<EnvironmentName>,
    agenda: CheckSchedule,
}

impl ReleaseWorker {
    /// Leads whenever it can, until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        loop {
            let (store, ttl) = (
                self.releases.store.clone(),
                self.releases.options.leader_ttl,
            );
            let campaign = Leadership::campaign(store, keys::RELEASE_LEADER, &self.name, ttl);
            let leadership = tokio::select! {
                () = shutdown.cancelled() => return,
                won = campaign => won,
            };
            match leadership {
                Ok(leadership) => {
                    let ended = tokio::select! {
                        () = shutdown.cancelled() => None,
                        () = leadership.keep_alive() => Some(Ok(())),
                        outcome = self.lead() => Some(outcome),
                    };
                    leadership.resign().await;
                    match ended {
                        None => return,
                        Some(Ok(())) => tracing::warn!("another server leads the releases now"),
                        Some(Err(error)) => {
                            tracing::warn!(error = %error, "leading the releases failed; retrying")
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot stand for election as the leader of releases; retrying")
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn lead(&self) -> Result<(), ServiceError> {
        let store = &self.releases.store;
        let mut compiled = Follow::new(store.clone(), keys::COMPILED);
        let mut failed = Follow::new(store.clone(), keys::COMPILE_ERRORS);
        let mut heads = Follow::new(store.clone(), keys::RELEASE_HEADS);
        let mut holds = Follow::new(store.clone(), keys::RELEASE_HOLDS);
        let mut policies = Follow::new(store.clone(), keys::ENVIRONMENTS);
        let mut collect = tokio::time::interval(self.releases.options.collect_every);
        let mut lead = LeaderState::default();
        lead.take_compiled(compiled.next().await?, &self.releases.options);
        lead.take_failed(failed.next().await?, &self.releases.options);
        // A node that is compiled already is not new to this leader.
        lead.appeared.clear();
        lead.take_settings(heads.next().await?, keys::parse_release_head);
        // A previous leader may have stopped anywhere.
        for environment in lead.environments.clone() {
            self.apply(&environment, Extent::Everything).await?;
        }
        loop {
            let due = lead.agenda.next();
            tokio::select! {
                followed = compiled.next() => lead.take_compiled(followed?, &self.releases.options),
                followed = failed.next() => lead.take_failed(followed?, &self.releases.options),
                ended = lead.joins.ended() => {
                    if let Some(environment) = ended {
                        lead.schedule(&environment, &self.releases.options);
                    }
                    lead.joins.start(&self.compiler);
                }
                followed = heads.next() => lead.take_settings(followed?, keys::parse_release_head),
                followed = holds.next() => lead.take_settings(followed?, keys::parse_release_hold),
                followed = policies.next() => lead.take_settings(followed?, policy::parse_settings),
                () = sleep_until(due) => self.apply_due(&mut lead).await,
                _ = collect.tick() => self.collect(&lead.environments).await,
            }
        }
    }

    /// Handles the environments that are due.
    async fn apply_due(&self, lead: &mut LeaderState) {
        for environment in lead.agenda.take_due(Instant::now()) {
            let again = match self.advance(&environment, lead).await {
                Ok(None) => continue,
                Ok(Some(again)) => again,
                Err(error) => {
                    tracing::warn!(%environment, error = %error, "releasing failed; retrying");
                    Instant::now() + RETRY
                }
            };
            lead.agenda.at(&environment, again);
        }
    }

    /// Brings one environment to its desired state. Returns the time of the
    /// next check, if one is needed although nothing changes.
    pub(super) async fn advance(
        &self,
        environment: &EnvironmentName,
        lead: &mut LeaderState,
    ) -> Result<Option<Instant>, ServiceError> {
        self.apply(environment, Extent::News).await?;
        let held: HeldCatalogs = lead.held_in(environment);
        let is_held = self.releases.hold_of(environment).await?.is_some();
        let policy = self.releases.policy(environment).await?;
        let mut again = None;
        if policy == ReleasePolicy::Auto && !is_held {
            let (outcome, withheld) = self.release(environment, &held).await?;
            match outcome {
                ProposalOutcome::NothingToDo => {}
                ProposalOutcome::Overtaken => return Ok(Some(Instant::now() + TURN)),
                ProposalOutcome::Released(release) => {
                    tracing::info!(%environment, release = %release.number, changed = release.changed, "released");
                    self.apply(environment, Extent::News).await?;
                }
            }
            again = withheld.then(|| Instant::now() + ROLLED_BACK_CHECK);
        }
        let failed: BTreeMap<&NodeName, &CompileFailed> = (lead.failed.iter())
            .filter(|(node, failed)| {
                failed.environment == *environment && !held.contains_key(*node)
            })
            .collect();
        let is_here = |node: &&NodeName| held.contains_key(*node) || failed.contains_key(*node);
        let appeared: BTreeSet<NodeName> =
            (lead.appeared.iter()).filter(is_here).cloned().collect();
        let nodes = CompiledNodes {
            held: &held,
            failed,
            appeared: &appeared,
        };
        let joined = self.releases.join(environment, &nodes, &mut lead.joins);
        match joined.await? {
            JoinStep::Done => lead.appeared.retain(|node| !appeared.contains(node)),
            JoinStep::Overtaken => return Ok(Some(Instant::now() + TURN)),
            JoinStep::Released => {
                self.apply(environment, Extent::News).await?;
                return Ok(Some(Instant::now()));
            }
        }
        lead.joins.start(&self.compiler);
        let retry = lead.joins.retry(environment);
        Ok(again.into_iter().chain(retry).min())
    }

    async fn apply(
        &self,
        environment: &EnvironmentName,
        extent: Extent,
    ) -> Result<(), ServiceError> {
        while self.releases.apply(environment, extent).await? == ApplyOutcome::Overtaken {}
        Ok(())
    }

    /// Creates the release that the policy `auto` requires, if any. Also
    /// returns whether rolled-back catalogs were left out.
    async fn release(
        &self,
        environment: &EnvironmentName,
        held: &HeldCatalogs,
    ) -> Result<(ProposalOutcome, bool), ServiceError> {
        let releases = &self.releases;
        let head = releases.head(environment).await?;
        let (newest, map) = releases.newest_map(environment, &head).await?;
        let rules = releases.rules_of(environment, newest.as_ref()).await?;
        let map = releases.present(environment, map, held).await?;
        let mut allowed = held.clone();
        for (node, held) in held {
            if rules.rolled_back.contains(&held.code_id) {
                let code = releases.current_code(node, held).await?;
                if rules.rolled_back.contains(&code) {
                    allowed.remove(node);
                }
            }
        }
        let withheld = allowed.len() < held.len();
        let proposal = automatic(map, &rules, &allowed, next_number(&head));
        let known = newest.map(|release| (release.map, rules));
        let proposed = releases
            .propose(environment, &head, known, proposal)
            .await?;
        Ok((proposed, withheld))
    }

    async fn collect(&self, environments: &BTreeSet<EnvironmentName>) {
        for environment in environments {
            match self.releases.collect(environment).await {
                Ok(collected) => tracing::debug!(%environment, ?collected, "deleted old releases"),
                Err(error) => {
                    tracing::warn!(%environment, error = %error, "cannot delete old releases; retrying")
                }
            }
        }
    }
}

/// Proposes a release of everything that is newer than the nodes' catalogs.
/// Nodes that a user released in noop mode stay in noop mode.
fn automatic(
    map: ReleaseMap,
    rules: &JoinRules,
    held: &HeldCatalogs,
    next: ReleaseNumber,
) -> Proposal {
    let mut new = map.clone();
    for mode in [RunMode::Enforce, RunMode::Noop] {
        let of_this_mode = held.iter().filter(|(node, held)| match map.get(*node) {
            Some(entry) => entry.mode == mode && entry.catalog != Some(held.catalog),
            None => mode == RunMode::Enforce,
        });
        let chosen = of_this_mode.map(|(node, _)| node.clone()).collect();
        new = overlaid(new, held, &chosen, mode, next);
    }
    let is_new = |node: &NodeName| new.get(node).is_some_and(|entry| entry.since == next);
    let brought = held.iter().filter(|(node, _)| is_new(node));
    let newest = brought.map(|(_, held)| (held.compiled_at, &held.code_id));
    let join_rules = match newest.max() {
        None => rules.clone(),
        Some((_, code_id)) => rules.with(JoinRule {
            release: next,
            code_id: code_id.clone(),
            mode: RunMode::Enforce,
            covers: JoinCoverage::All,
        }),
    };
    Proposal {
        map: new,
        join_rules,
        kind: ReleaseKind::Auto,
        mode: RunMode::Enforce,
        by: "bunraku".to_owned(),
        reason: None,
        hold: None,
    }
}

impl LeaderState {
    /// Gathers compiled catalogs. They are handled when no more arrive, or
    /// after the longest wait.
    pub(super) fn take_compiled(&mut self, followed: FollowEvent, options: &ReleaseOptions) {
        for change in changes(followed) {
            let before = match change {
                Change::Put(entry) => match compiled_catalogs::read(&entry) {
                    Ok(Some((node, held))) => {
                        self.joins.forget(&node);
                        self.schedule(&held.environment, options);
                        let known = self.held.get(&node).map(|known| &known.environment);
                        if known != Some(&held.environment) {
                            self.appeared.insert(node.clone());
                        }
                        self.held.insert(node, held)
                    }
                    Ok(None) => None,
                    Err(error) => {
                        tracing::error!(error = %error, "ignoring a compile record that cannot be read");
                        None
                    }
                },
                Change::Delete { key } => {
                    keys::parse_compiled(&key).and_then(|node| self.held.remove(&node))
                }
            };
            if let Some(before) = before {
                self.schedule(&before.environment, options);
            }
        }
    }

    /// Gathers failures: a node that never compiled may compile from released
    /// code.
    pub(super) fn take_failed(&mut self, followed: FollowEvent, options: &ReleaseOptions) {
        for change in changes(followed) {
            match change {
                Change::Put(entry) => {
                    let node = keys::parse_node_below(keys::COMPILE_ERRORS, &entry.key);
                    let failed = document::decode::<CompileFailed>(&entry);
                    let (Some(node), Ok(failed)) = (node, failed) else {
                        tracing::error!(
                            key = entry.key,
                            "ignoring a compile failure that cannot be read"
                        );
                        continue;
                    };
                    self.joins.forget(&node);
                    if !self.held.contains_key(&node) {
                        self.appeared.insert(node.clone());
                    }
                    self.schedule(&failed.environment, options);
                    self.failed.insert(node, failed);
                }
                Change::Delete { key } => {
                    if let Some(node) = keys::parse_node_below(keys::COMPILE_ERRORS, &key) {
                        self.failed.remove(&node);
                    }
                }
            }
        }
    }

    fn held_in(&self, environment: &EnvironmentName) -> HeldCatalogs {
        let all = self.held.iter();
        all.filter(|(_, held)| held.environment == *environment)
            .map(|(node, held)| (node.clone(), held.clone()))
            .collect()
    }

    fn schedule(&mut self, environment: &EnvironmentName, options: &ReleaseOptions) {
        self.environments.insert(environment.clone());
        self.agenda.gather(environment, Instant::now(), options);
    }

    /// Schedules an immediate check.
    fn take_settings(
        &mut self,
        followed: FollowEvent,
        parse: impl Fn(&str) -> Option<EnvironmentName>,
    ) {
        let touched: Vec<String> = match followed {
            FollowEvent::Snapshot { items, .. } => items.into_iter().map(|item| item.key).collect(),
            FollowEvent::Changes(batch) => batch
                .changes
                .into_iter()
                .map(|change| match change {
                    Change::Put(entry) => entry.key,
                    Change::Delete { key } => key,
                })
                .collect(),
        };
        for environment in touched.iter().filter_map(|key| parse(key)) {
            self.agenda.at(&environment, Instant::now());
            self.environments.insert(environment);
        }
    }
}

fn changes(followed: FollowEvent) -> Vec<Change> {
    match followed {
        FollowEvent::Snapshot { items, .. } => items.into_iter().map(Change::Put).collect(),
        FollowEvent::Changes(batch) => batch.changes,
    }
}

impl CheckSchedule {
    fn at(&mut self, environment: &EnvironmentName, at: Instant) {
        let due = self.waiting.entry(environment.clone());
        due.and_modify(|due| due.at = due.at.min(at))
            .or_insert(DueCheck { first: at, at });
    }

    fn gather(&mut self, environment: &EnvironmentName, now: Instant, options: &ReleaseOptions) {
        let due = self.waiting.entry(environment.clone());
        due.and_modify(|due| due.at = (now + options.quiet).min(due.first + options.longest_wait))
            .or_insert(DueCheck {
                first: now,
                at: now + options.quiet,
            });
    }

    fn next(&self) -> Option<Instant> {
        self.waiting.values().map(|due| due.at).min()
    }

    fn take_due(&mut self, now: Instant) -> Vec<EnvironmentName> {
        let due: Vec<EnvironmentName> = self
            .waiting
            .iter()
            .filter(|(_, due)| due.at <= now)
            .map(|(environment, _)| environment.clone())
            .collect();
        for environment in &due {
            self.waiting.remove(environment);
        }
        due
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn changes_are_gathered_until_it_is_quiet_but_not_for_ever() {
        let options = ReleaseOptions {
            quiet: Duration::from_secs(1),
            longest_wait: Duration::from_secs(10),
            ..ReleaseOptions::default()
        };
        let production = EnvironmentName::new("production").expect("a name");
        let (mut agenda, start) = (CheckSchedule::default(), Instant::now());
        let after = |tenths: u32| start + Duration::from_millis(100) * tenths;
        agenda.gather(&production, start, &options);
        agenda.gather(&production, after(5), &options);
        assert!(agenda.take_due(after(14)).is_empty());
        assert_eq!(agenda.take_due(after(15)).len(), 1);
        assert_eq!(agenda.next(), None);
        for tenths in 0..200 {
            agenda.gather(&production, after(tenths), &options);
        }
        assert_eq!(agenda.next(), Some(after(100)));
    }
}
