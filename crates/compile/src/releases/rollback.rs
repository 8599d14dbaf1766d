//! Rolls back: a new release with the catalogs and the join rules of an old one.
//!
//! Nodes that joined later have no catalog in the old release. They get one of
//! the code that the old release's join rules name. Until it is compiled, their
//! catalog is withdrawn: no node receives rolled-back code, not even by asking
//! again for the target that it has.

use std::collections::BTreeSet;

use bunraku_model::{CodeId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_wire::api::{ReleaseHold, ReleaseKind, ReleaseReply, RollbackRequest};

use super::Releases;
use super::compiled_catalogs::HeldCatalogs;
use super::create::{MOST_TURNS, Proposal, next_number, put, too_many_turns};
use super::document::{MapEntry, Release, ReleaseMap};
use super::join_rules::{JoinRules, QueryMatches};
use bunraku_control::{ServiceError, document, keys};

impl Releases {
    /// Creates a release with the catalogs of an old one. It also holds the
    /// environment.
    pub async fn rollback(
        &self,
        environment: &EnvironmentName,
        request: &RollbackRequest,
        by: &str,
    ) -> Result<ReleaseReply, ServiceError> {
        let mut parent = request.parent;
        for _ in 0..MOST_TURNS {
            let head = self.head_on(environment, &mut parent).await?;
            let (Some(newest), map) = self.newest_map(environment, &head).await? else {
                return Err(ServiceError::conflict(
                    format!("`{environment}` has no release to roll back"),
                    format!("create one with `bunraku release create {environment}`"),
                ));
            };
            let back_to = self
                .release_to_go_back_to(environment, request, &newest)
                .await?;
            let held = self.held(environment).await?;
            let map = self.present(environment, map, &held).await?;
            let rules = self.rules_of(environment, Some(&newest)).await?;
            let number = back_to.summary.number;
            let old_map = self.maps.read(&back_to.map).await?;
            let old = OldRelease {
                map: self.present(environment, old_map, &held).await?,
                rules: self.rules_of(environment, Some(&back_to)).await?,
            };
            let mut discarded = self.codes_since(environment, number).await?;
            discarded.extend(map.values().filter_map(|entry| entry.code_id.clone()));
            let join_rules = rules.rolled_back_to(&old.rules, discarded, &old.codes());
            // A rollback must not fail because of a query. Without an answer, the nodes that
            // joined later wait until the leader has one.
            let matches = match self.query_matches(&join_rules).await {
                Ok(matches) => Some(matches),
                Err(error) => {
                    tracing::warn!(%environment, error = %error, "cannot find the nodes of a join rule; nodes that joined later wait");
                    None
                }
            };
            let restored = old.restore(map, next_number(&head), |node, now| {
                let matches = matches.as_ref()?;
                old.joined_later(environment, node, now, &held, matches, &join_rules)
            });
            let proposal = Proposal {
                map: restored,
                join_rules,
                kind: ReleaseKind::Rollback { release: number },
                mode: back_to.summary.mode,
                by: by.to_owned(),
                hold: Some(self.hold_after_rollback(number, request, by)),
                reason: request.reason.clone(),
            };
            let known = Some((newest.map, rules));
            let made = self.propose(environment, &head, known, proposal).await?;
            if let Some(reply) = self.reply(environment, made).await? {
                return Ok(reply);
            }
        }
        Err(too_many_turns(environment))
    }

    fn hold_after_rollback(
        &self,
        number: ReleaseNumber,
        request: &RollbackRequest,
        by: &str,
    ) -> ReleaseHold {
        ReleaseHold {
            reason: match &request.reason {
                Some(reason) => format!("rolled back to release {number}: {reason}"),
                None => format!("rolled back to release {number}"),
            },
            by: by.to_owned(),
            since: self.clock.now(),
        }
    }

    /// Returns the release that the user names, or the one before the newest.
    /// Releases that only added nodes do not count. After a rollback, it is the
    /// one before the release that the rollback returned to: a second rollback
    /// does not undo the first.
    async fn release_to_go_back_to(
        &self,
        environment: &EnvironmentName,
        request: &RollbackRequest,
        newest: &Release,
    ) -> Result<Release, ServiceError> {
        if let Some(number) = request.release {
            return self.release(environment, number).await;
        }
        let mut release = newest.clone();
        loop {
            let before = match release.summary.kind {
                ReleaseKind::Rollback { release: to } => Some(to),
                ReleaseKind::Added { .. } => release.summary.parent,
                ReleaseKind::Auto | ReleaseKind::Created(_) => None,
            };
            let Some(before) = before else { break };
            release = self.release(environment, before).await?;
        }
        match release.summary.parent {
            Some(before) => self.release(environment, before).await,
            None => Err(ServiceError::conflict(
                format!(
                    "release {} of `{environment}` is the first: there is no earlier one",
                    release.summary.number
                ),
                "hold the environment, or release other catalogs",
            )),
        }
    }

    /// Returns the code of all releases after this one.
    async fn codes_since(
        &self,
        environment: &EnvironmentName,
        number: ReleaseNumber,
    ) -> Result<BTreeSet<CodeId>, ServiceError> {
        let prefix = keys::releases(environment);
        let mut codes = BTreeSet::new();
        for entry in document::read_all(&*self.store, &prefix).await? {
            let release: Release = document::decode(&entry)?;
            if release.summary.number > number {
                codes.extend(release.codes);
                codes.extend(release.summary.code_id);
                let rules = release.join_rules.unwrap_or_default();
                codes.extend(rules.codes().cloned());
            }
        }
        Ok(codes)
    }
}

/// The release to return to.
struct OldRelease {
    map: ReleaseMap,
    rules: JoinRules,
}

impl OldRelease {
    fn codes(&self) -> BTreeSet<CodeId> {
        let codes = self.map.values().filter_map(|entry| entry.code_id.clone());
        codes.collect()
    }

    /// Returns true if the release names a catalog for the node.
    fn contains(&self, node: &NodeName) -> bool {
        let entry = self.map.get(node);
        entry.is_some_and(|entry| entry.catalog.is_some())
    }

    /// Returns the map after the rollback: all nodes of both maps.
    /// `joined_later` returns the entry of a node that the old release does not
    /// contain, if there is one.
    fn restore(
        &self,
        mut map: ReleaseMap,
        next: ReleaseNumber,
        joined_later: impl Fn(&NodeName, &MapEntry) -> Option<MapEntry>,
    ) -> ReleaseMap {
        for (node, now) in &mut map {
            if !self.contains(node) {
                let entry = joined_later(node, now).unwrap_or(MapEntry::withdrawn(next));
                if !now.is_same_for_the_node(&entry) {
                    *now = MapEntry {
                        since: next,
                        ..entry
                    };
                }
            }
        }
        for (node, old) in self.map.iter().filter(|(node, _)| self.contains(node)) {
            let entry = MapEntry {
                since: next,
                ..old.clone()
            };
            put(&mut map, node, entry);
        }
        map
    }

    /// Returns the entry of a node that the old release does not contain, or
    /// nothing if it must be compiled first.
    fn joined_later(
        &self,
        environment: &EnvironmentName,
        node: &NodeName,
        now: &MapEntry,
        held: &HeldCatalogs,
        matches: &QueryMatches,
        after: &JoinRules,
    ) -> Option<MapEntry> {
        let Some(rule) = self.rules.rule_for(environment, node, matches) else {
            // No rule covers it. It may keep code that is not rolled back.
            let code = now.code_id.as_ref()?;
            return (!after.rolled_back.contains(code)).then(|| now.clone());
        };
        let of_rule = |catalog| MapEntry {
            catalog: Some(catalog),
            mode: rule.mode,
            since: now.since,
            code_id: Some(rule.code_id.clone()),
        };
        if now.code_id.as_ref() == Some(&rule.code_id)
            && let Some(catalog) = now.catalog
        {
            return Some(of_rule(catalog));
        }
        let held = held.get(node).filter(|held| held.code_id == rule.code_id)?;
        Some(of_rule(held.catalog))
    }
}
