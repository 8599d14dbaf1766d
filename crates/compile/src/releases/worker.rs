//! The one server that applies releases and creates the automatic ones.
//!
//! It follows compiled catalogs, heads, holds and policies, and gathers
//! changes: compiling ten thousand nodes gives a handful of releases. All of
//! its work is correct even if two servers do it. So losing the lead in the
//! middle, or dying, needs no special handling.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::{Change, Follow, FollowEvent};
use bunraku_wire::api::{ReleaseKind, ReleasePolicy, ReleaseTo, RunMode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apply::{ApplyOutcome, Extent};
use super::compiled_catalogs::{self, HeldCatalog, HeldCatalogs};
use super::create::{Proposal, ProposalOutcome, overlaid};
use super::document::{Release, ReleaseMap};
use super::policy;
use super::{ReleaseOptions, Releases, number_of};
use bunraku_control::leader::Leadership;
use bunraku_control::{ServiceError, keys};

/// Delay before a failed operation is retried.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);
/// Time for concurrent changes to become visible.
const TURN: std::time::Duration = std::time::Duration::from_millis(50);
/// Maximum number of releases to go back when searching for a rule.
const LONGEST_CHAIN: usize = 1_000;

pub struct ReleaseWorker {
    pub releases: Releases,
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
struct LeaderState {
    held: BTreeMap<NodeName, HeldCatalog>,
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
        let mut heads = Follow::new(store.clone(), keys::RELEASE_HEADS);
        let mut holds = Follow::new(store.clone(), keys::RELEASE_HOLDS);
        let mut policies = Follow::new(store.clone(), keys::ENVIRONMENTS);
        let mut collect = tokio::time::interval(self.releases.options.collect_every);
        let mut lead = LeaderState {
            held: BTreeMap::new(),
            environments: BTreeSet::new(),
            agenda: CheckSchedule::default(),
        };
        lead.take_compiled(compiled.next().await?, &self.releases.options);
        lead.take_settings(heads.next().await?, keys::parse_release_head);
        // A previous leader may have stopped anywhere.
        for environment in lead.environments.clone() {
            self.apply(&environment, Extent::Everything).await?;
        }
        loop {
            let due = lead.agenda.next();
            tokio::select! {
                followed = compiled.next() => lead.take_compiled(followed?, &self.releases.options),
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
            let again = match self.advance(&environment, &lead.held).await {
                Ok(true) => continue,
                Ok(false) => TURN,
                Err(error) => {
                    tracing::warn!(%environment, error = %error, "releasing failed; retrying");
                    RETRY
                }
            };
            lead.agenda.at(&environment, Instant::now() + again);
        }
    }

    /// Brings one environment to its desired state. Returns false if something
    /// changed in between, which must be read first.
    async fn advance(
        &self,
        environment: &EnvironmentName,
        held: &BTreeMap<NodeName, HeldCatalog>,
    ) -> Result<bool, ServiceError> {
        self.apply(environment, Extent::News).await?;
        if self.releases.hold_of(environment).await?.is_some() {
            return Ok(true);
        }
        let held: HeldCatalogs = held
            .iter()
            .filter(|(_, held)| held.environment == *environment)
            .map(|(node, held)| (node.clone(), held.clone()))
            .collect();
        let policy = self.releases.policy(environment).await?;
        match self.release(environment, policy, &held).await? {
            ProposalOutcome::NothingToDo => Ok(true),
            ProposalOutcome::Overtaken => Ok(false),
            ProposalOutcome::Released(release) => {
                tracing::info!(%environment, release = %release.number, changed = release.changed, "released");
                self.apply(environment, Extent::News).await?;
                Ok(true)
            }
        }
    }

    async fn apply(
        &self,
        environment: &EnvironmentName,
        extent: Extent,
    ) -> Result<(), ServiceError> {
        while self.releases.apply(environment, extent).await? == ApplyOutcome::Overtaken {}
        Ok(())
    }

    /// Creates the release that the policy requires, if any.
    async fn release(
        &self,
        environment: &EnvironmentName,
        policy: ReleasePolicy,
        held: &HeldCatalogs,
    ) -> Result<ProposalOutcome, ServiceError> {
        let head = self.releases.head(environment).await?;
        let (newest, map) = self.releases.newest_map(environment, &head).await?;
        let map = self.releases.present(environment, map, held).await?;
        let next = ReleaseNumber(number_of(&head).0 + 1);
        let proposal = match policy {
            ReleasePolicy::Auto => Some(automatic(map, held, next)),
            ReleasePolicy::Manual => {
                let newest = newest.as_ref();
                self.added(environment, newest, map, held, next).await?
            }
        };
        let Some(proposal) = proposal else {
            return Ok(ProposalOutcome::NothingToDo);
        };
        let newest = newest.map(|release| release.map);
        let proposed = self.releases.propose(environment, &head, newest, proposal);
        proposed.await
    }

    /// Returns the nodes that came after the release whose rule covers them,
    /// with catalogs of code that is already released.
    async fn added(
        &self,
        environment: &EnvironmentName,
        newest: Option<&Release>,
        map: ReleaseMap,
        held: &HeldCatalogs,
        next: ReleaseNumber,
    ) -> Result<Option<Proposal>, ServiceError> {
        let codes: BTreeSet<_> = map
            .values()
            .filter_map(|entry| entry.code_id.as_ref())
            .collect();
        let new: BTreeSet<NodeName> = held
            .iter()
            .filter(|(node, held)| !map.contains_key(*node) && codes.contains(&held.code_id))
            .map(|(node, _)| node.clone())
            .collect();
        let (Some(newest), false) = (newest, new.is_empty()) else {
            return Ok(None);
        };
        let Some((rule_of, rule, mode)) = self.rule(environment, newest).await? else {
            return Ok(None);
        };
        let covered = self.releases.covers(environment, &rule, held).await?;
        let chosen = covered.intersection(&new).cloned().collect();
        Ok(Some(Proposal {
            map: overlaid(map, held, &chosen, mode, next),
            kind: ReleaseKind::Added { rule_of },
            mode,
            by: "bunraku".to_owned(),
            reason: None,
            hold: None,
        }))
    }

    /// Returns the rule for new nodes: that of the newest release that a user
    /// created or rolled back to.
    async fn rule(
        &self,
        environment: &EnvironmentName,
        newest: &Release,
    ) -> Result<Option<(ReleaseNumber, ReleaseTo, RunMode)>, ServiceError> {
        let mut release = newest.summary.clone();
        for _ in 0..LONGEST_CHAIN {
            let of = match release.kind {
                ReleaseKind::Created(to) => return Ok(Some((release.number, to, release.mode))),
                ReleaseKind::Auto => {
                    return Ok(Some((release.number, ReleaseTo::Everything, release.mode)));
                }
                ReleaseKind::Added { rule_of } => rule_of,
                ReleaseKind::Rollback { release } => release,
            };
            release = match self.releases.release(environment, of).await {
                Ok(found) => found.summary,
                Err(ServiceError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        Ok(None)
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
fn automatic(map: ReleaseMap, held: &HeldCatalogs, next: ReleaseNumber) -> Proposal {
    let mut new = map.clone();
    for mode in [RunMode::Enforce, RunMode::Noop] {
        let of_this_mode = held.iter().filter(|(node, held)| match map.get(*node) {
            Some(entry) => entry.mode == mode && entry.catalog != held.catalog,
            None => mode == RunMode::Enforce,
        });
        let chosen = of_this_mode.map(|(node, _)| node.clone()).collect();
        new = overlaid(new, held, &chosen, mode, next);
    }
    Proposal {
        map: new,
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
    fn take_compiled(&mut self, followed: FollowEvent, options: &ReleaseOptions) {
        let changes = match followed {
            FollowEvent::Snapshot { items, .. } => items.into_iter().map(Change::Put).collect(),
            FollowEvent::Changes(batch) => batch.changes,
        };
        for change in changes {
            let before = match change {
                Change::Put(entry) => match compiled_catalogs::read(&entry) {
                    Ok(Some((node, held))) => {
                        self.schedule(&held.environment, options);
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
