//! Reads releases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::{Change, WatchStart};
use bunraku_wire::api::{
    NodeWithoutCatalog, ReleaseDetail, ReleaseEntry, ReleaseJoinRule, ReleaseList, ReleaseState,
    ReleaseSummary,
};
use futures::StreamExt;

use super::compiled_catalogs::HeldCatalogs;
use super::document::{JoinOutcome, Release, ReleaseMap};
use super::join_rules::{JoinRule, JoinRules};
use super::{Releases, number_of};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

impl Releases {
    /// Returns all stored releases, newest first.
    pub async fn list(&self, environment: &EnvironmentName) -> Result<ReleaseList, ServiceError> {
        let mut releases = Vec::new();
        let prefix = keys::releases(environment);
        for entry in document::read_all(&*self.store, &prefix).await? {
            releases.push(document::decode::<Release>(&entry)?.summary);
        }
        releases.reverse();
        let head = self.head(environment).await?;
        let (newest, map) = self.newest_map(environment, &head).await?;
        let rules = self.rules_of(environment, newest.as_ref()).await?;
        let held = self.held(environment).await?;
        let waits = |(node, held): &(&_, &super::compiled_catalogs::HeldCatalog)| {
            map.get(*node).and_then(|entry| entry.catalog) != Some(held.catalog)
        };
        Ok(ReleaseList {
            environment: environment.clone(),
            hold: self.hold_of(environment).await?,
            state: match &head {
                None => None,
                Some(head) => Some(self.state(environment, head.document.number).await?),
            },
            waiting: held.iter().filter(waits).count(),
            rolled_back: rules.rolled_back.into_iter().collect(),
            releases,
        })
    }

    /// Returns one release with its map; the newest if no number is given.
    pub async fn show(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
    ) -> Result<ReleaseDetail, ServiceError> {
        let number = match number {
            Some(number) => number,
            None => number_of(&self.head(environment).await?),
        };
        let release = self.release(environment, number).await?;
        let map = self.maps.read(&release.map).await?;
        let rules = self.rules_of(environment, Some(&release)).await?;
        let state = self.state(environment, number).await?;
        let joins = match self.applied(environment).await? {
            Some(applied) if applied.number == number => applied.joins,
            _ => None,
        };
        let without_catalog = if state == ReleaseState::Replaced {
            Vec::new()
        } else {
            let held = self.held(environment).await?;
            without_catalog(environment, &map, &held, &rules, joins.as_ref())
        };
        Ok(ReleaseDetail {
            state,
            map: lines(&map).map(|(_, line)| line).collect(),
            join_rules: rules.rules.iter().map(join_rule).collect(),
            rolled_back: rules.rolled_back.into_iter().collect(),
            without_catalog,
            is_complete: joins.is_some(),
            summary: release.summary,
        })
    }

    /// Same as [`Releases::show`], but waits until the release is applied or
    /// replaced, for at most `most`. With `complete`, it also waits until nodes
    /// that joined later have its code.
    pub async fn show_applied(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
        complete: bool,
        most: Duration,
    ) -> Result<ReleaseDetail, ServiceError> {
        let wait = async {
            let key = keys::release_applied(environment);
            let mut changes = self.store.watch(&key, WatchStart::Now).await?;
            loop {
                // Watch first, then read, so that no change is missed.
                let detail = self.show(environment, number).await?;
                let is_done = match detail.state {
                    ReleaseState::Applying => false,
                    ReleaseState::Current => detail.is_complete || !complete,
                    ReleaseState::Replaced => true,
                };
                if is_done {
                    return Ok(());
                }
                loop {
                    let Some(batch) = changes.next().await else {
                        return Ok(());
                    };
                    let put = |change: &Change| matches!(change, Change::Put(_));
                    if batch?.changes.iter().any(put) {
                        break;
                    }
                }
            }
        };
        match tokio::time::timeout(most, wait).await {
            Err(_) | Ok(Ok(())) => self.show(environment, number).await,
            Ok(Err(error)) => Err(error),
        }
    }

    /// Returns a release, and the catalog of each node; the newest if no number
    /// is given.
    pub async fn with_map(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
    ) -> Result<(ReleaseSummary, BTreeMap<NodeName, ReleaseEntry>), ServiceError> {
        let number = match number {
            Some(number) => number,
            None => number_of(&self.head(environment).await?),
        };
        let release = self.release(environment, number).await?;
        let map = self.maps.read(&release.map).await?;
        let entries = lines(&map).map(|(node, line)| (node.clone(), line));
        Ok((release.summary, entries.collect()))
    }

    /// Returns the number of the newest release.
    pub async fn newest(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<ReleaseNumber>, ServiceError> {
        let head = self.head(environment).await?;
        Ok(head.map(|head| head.document.number))
    }

    async fn state(
        &self,
        environment: &EnvironmentName,
        number: ReleaseNumber,
    ) -> Result<ReleaseState, ServiceError> {
        // Read in this order: a release applied meanwhile is not newer than the head.
        let applied = self.applied(environment).await?;
        let newest = number_of(&self.head(environment).await?);
        Ok(match () {
            () if number < newest => ReleaseState::Replaced,
            () if applied.is_some_and(|applied| applied.number == number) => ReleaseState::Current,
            () => ReleaseState::Applying,
        })
    }
}

fn lines(map: &ReleaseMap) -> impl Iterator<Item = (&NodeName, ReleaseEntry)> {
    map.iter()
        .filter_map(|(node, entry)| Some((node, entry.line(node)?)))
}

fn join_rule(rule: &JoinRule) -> ReleaseJoinRule {
    ReleaseJoinRule {
        release: rule.release,
        code_id: rule.code_id.clone(),
        mode: rule.mode,
        covers: rule.covers.to(),
    }
}

/// Returns the nodes that have no catalog in the newest release, and why.
fn without_catalog(
    environment: &EnvironmentName,
    map: &ReleaseMap,
    held: &HeldCatalogs,
    rules: &JoinRules,
    joins: Option<&JoinOutcome>,
) -> Vec<NodeWithoutCatalog> {
    let withdrawn = map.iter().filter(|(_, entry)| entry.catalog.is_none());
    let new = held.keys().filter(|node| !map.contains_key(*node));
    let problems = joins.iter().flat_map(|joins| joins.problems.keys());
    let nodes: BTreeSet<&NodeName> = (withdrawn.map(|(node, _)| node))
        .chain(new)
        .chain(problems)
        .collect();
    let reason = |node: &NodeName| match joins {
        None => "its catalog is being prepared".to_owned(),
        Some(joins) => match joins.problems.get(node) {
            Some(problem) => problem.clone(),
            None if rules.rules.is_empty() => "no release covers nodes that join later".to_owned(),
            None => format!("no release of `{environment}` covers it"),
        },
    };
    let nodes = nodes.into_iter().map(|node| NodeWithoutCatalog {
        node: node.clone(),
        reason: reason(node),
    });
    nodes.collect()
}
