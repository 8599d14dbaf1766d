//! The join rules of stored releases, and the nodes that their queries find.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{CodeId, EnvironmentName};
use bunraku_wire::api::{ReleaseKind, ReleaseTo};

use super::Releases;
use super::document::{Release, ReleaseHead};
use super::join_rules::{JoinCoverage, JoinRule, JoinRules, QueryMatches};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Maximum number of releases to go back when searching for a rule.
const LONGEST_CHAIN: usize = 1_000;
/// The code of the rules of this many releases is kept, the newest ones.
const RELEASES_WITH_CODE: usize = 10;

impl Releases {
    /// Returns the join rules of a release; none before the first.
    pub(super) async fn rules_of(
        &self,
        environment: &EnvironmentName,
        release: Option<&Release>,
    ) -> Result<JoinRules, ServiceError> {
        match release {
            None => Ok(JoinRules::default()),
            Some(Release {
                join_rules: Some(rules),
                ..
            }) => Ok(rules.clone()),
            Some(release) => self.derived_rules(environment, release).await,
        }
    }

    /// Derives the rules of a release that was stored without them: the newest
    /// release to all nodes counts, if all of its catalogs are of one commit.
    async fn derived_rules(
        &self,
        environment: &EnvironmentName,
        release: &Release,
    ) -> Result<JoinRules, ServiceError> {
        let mut summary = release.summary.clone();
        for _ in 0..LONGEST_CHAIN {
            let is_for_all = matches!(
                summary.kind,
                ReleaseKind::Auto | ReleaseKind::Created(ReleaseTo::Everything)
            );
            let before = match summary.kind {
                ReleaseKind::Added { rule_of } => Some(rule_of),
                ReleaseKind::Rollback { release } => Some(release),
                ReleaseKind::Auto | ReleaseKind::Created(_) => summary.parent,
            };
            if let (true, Some(code_id)) = (is_for_all, summary.code_id.clone()) {
                return Ok(JoinRules::default().with(JoinRule {
                    release: summary.number,
                    code_id,
                    mode: summary.mode,
                    covers: JoinCoverage::All,
                }));
            }
            let Some(before) = before else { break };
            summary = match self.release(environment, before).await {
                Ok(found) => found.summary,
                Err(ServiceError::NotFound { .. }) => break,
                Err(error) => return Err(error),
            };
        }
        Ok(JoinRules::default())
    }

    /// Returns the nodes that the queries of the rules find now.
    pub(super) async fn query_matches(
        &self,
        rules: &JoinRules,
    ) -> Result<QueryMatches, ServiceError> {
        let mut matches = QueryMatches::new();
        for query in rules.queries() {
            let found = self.find_nodes.nodes_matching(&query).await?;
            matches.insert(query, found.into_iter().collect());
        }
        Ok(matches)
    }

    /// Returns the code that nodes may still be compiled from, by environment:
    /// that of the newest join rules, and of those that a rollback restores.
    pub async fn codes_in_use(
        &self,
    ) -> Result<BTreeMap<EnvironmentName, BTreeSet<CodeId>>, ServiceError> {
        let mut all = BTreeMap::new();
        for entry in document::read_all(&*self.store, keys::RELEASE_HEADS).await? {
            let Some(environment) = keys::parse_release_head(&entry.key) else {
                continue;
            };
            let head: ReleaseHead = document::decode(&entry)?;
            let newest = match self.release(&environment, head.number).await {
                Ok(newest) => newest,
                Err(ServiceError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let rules = self.rules_of(&environment, Some(&newest)).await?;
            let mut codes: BTreeSet<CodeId> = rules.codes().cloned().collect();
            let mut stored =
                document::read_all(&*self.store, &keys::releases(&environment)).await?;
            for entry in stored.drain(stored.len().saturating_sub(RELEASES_WITH_CODE)..) {
                let release: Release = document::decode(&entry)?;
                let rules = release.join_rules.unwrap_or_default();
                codes.extend(rules.codes().cloned());
            }
            all.insert(environment, codes);
        }
        Ok(all)
    }
}
