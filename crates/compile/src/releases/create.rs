//! Creates a release: choose, hold, write, and then one transaction.
//!
//! A stop before that transaction leaves nothing visible. It leaves only holds
//! that no release needs, which retention removes, and blobs whose pins expire.

use std::collections::BTreeSet;

use bunraku_model::{
    CatalogId, CodeId, EnvironmentName, NodeName, ReleaseNumber, content_id_of_json,
};
use bunraku_store::{Compare, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::{
    CreateRelease, ReleaseHold, ReleaseKind, ReleaseReply, ReleaseSummary, ReleaseTo, RunMode,
};
use uuid::Uuid;

use super::compiled_catalogs::HeldCatalogs;
use super::document::{MapAddress, MapEntry, Release, ReleaseHead, ReleaseMap};
use super::join_rules::{JoinCoverage, JoinRule, JoinRules};
use super::maps::map_error;
use super::{Releases, StoredHead, choice, holder, number_of};
use crate::catalogs::CatalogError;
use bunraku_control::document;
use bunraku_control::{AuditAction, ServiceError, keys, nodes};

/// Number of catalogs held in one transaction: two operations each.
const HOLDS_PER_TRANSACTION: usize = 50;
/// Maximum number of attempts to create a release when something changes meanwhile.
pub(super) const MOST_TURNS: usize = 20;

/// The map to release, and the reason.
pub(super) struct Proposal {
    pub(super) map: ReleaseMap,
    pub(super) join_rules: JoinRules,
    pub(super) kind: ReleaseKind,
    pub(super) mode: RunMode,
    pub(super) by: String,
    pub(super) reason: Option<String>,
    /// A hold that stops automatic releases after this one.
    pub(super) hold: Option<ReleaseHold>,
}

/// The result of a proposal.
pub(super) enum ProposalOutcome {
    Released(Box<ReleaseSummary>),
    /// Every node already has the catalog that it would get.
    NothingToDo,
    /// Another server wrote the head: check again.
    Overtaken,
}

impl Releases {
    /// Creates a release on a user's request.
    pub async fn create(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
        by: &str,
    ) -> Result<ReleaseReply, ServiceError> {
        self.create_checked(environment, request, by, None).await
    }

    /// Creates a release that was approved. Refuses if it would be another one by now.
    pub async fn create_expecting(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
        by: &str,
        digest: &str,
    ) -> Result<ReleaseReply, ServiceError> {
        let expected = Some(digest);
        self.create_checked(environment, request, by, expected)
            .await
    }

    /// Returns what a release would be now, without creating it.
    pub async fn proposed(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
    ) -> Result<ProposedRelease, ServiceError> {
        let mut parent = request.parent;
        let (head, held, chosen) = self.subject(environment, request, &mut parent).await?;
        let (_, map) = self.newest_map(environment, &head).await?;
        let next = next_number(&head);
        let after = overlaid(map.clone(), &held, &chosen, request.mode, next);
        let is_changed = |node: &&NodeName| match (map.get(*node), after.get(*node)) {
            (Some(before), Some(after)) => !before.is_same_for_the_node(after),
            (before, after) => before.is_some() != after.is_some(),
        };
        Ok(ProposedRelease {
            parent: number_of(&head),
            digest: digest_of(&head, request, &held, &chosen),
            nodes: chosen.iter().filter(is_changed).count(),
        })
    }

    /// Returns the head, the compiled catalogs and the nodes that a release would be about.
    async fn subject(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
        parent: &mut Option<ReleaseNumber>,
    ) -> Result<(StoredHead, HeldCatalogs, BTreeSet<NodeName>), ServiceError> {
        let head = self.head_on(environment, parent).await?;
        let held = self.held(environment).await?;
        let chosen = self.chosen(environment, &request.to, &held).await?;
        if chosen.is_empty() {
            self.refuse_nobody(environment, &head, &request.to, &held)
                .await?;
        }
        Ok((head, held, chosen))
    }

    async fn create_checked(
        &self,
        environment: &EnvironmentName,
        request: &CreateRelease,
        by: &str,
        expected: Option<&str>,
    ) -> Result<ReleaseReply, ServiceError> {
        let mut parent = request.parent;
        for _ in 0..MOST_TURNS {
            let (head, held, chosen) = self.subject(environment, request, &mut parent).await?;
            if expected.is_some_and(|digest| digest != digest_of(&head, request, &held, &chosen)) {
                return Err(ServiceError::conflict(
                    "the release would not be the one that was approved: catalogs or nodes have changed",
                    "request it again with `bunraku release create`",
                ));
            }
            let (newest, map) = self.newest_map(environment, &head).await?;
            let map = self.present(environment, map, &held).await?;
            let next = next_number(&head);
            let rules = self.rules_of(environment, newest.as_ref()).await?;
            let join_rules = self
                .rules_after(environment, &rules, request, next, &held, &chosen)
                .await?;
            let proposal = Proposal {
                map: overlaid(map, &held, &chosen, request.mode, next),
                join_rules,
                kind: ReleaseKind::Created(request.to.clone()),
                mode: request.mode,
                by: by.to_owned(),
                reason: request.reason.clone(),
                hold: None,
            };
            let known = newest.map(|release| (release.map, rules));
            let made = self.propose(environment, &head, known, proposal).await?;
            if let Some(reply) = self.reply(environment, made).await? {
                return Ok(reply);
            }
        }
        Err(too_many_turns(environment))
    }

    /// Returns the answer to a user, or nothing if the proposal has to be made again.
    pub(super) async fn reply(
        &self,
        environment: &EnvironmentName,
        made: ProposalOutcome,
    ) -> Result<Option<ReleaseReply>, ServiceError> {
        let release = match made {
            ProposalOutcome::Released(release) => Some(*release),
            ProposalOutcome::NothingToDo => None,
            ProposalOutcome::Overtaken => return Ok(None),
        };
        let hold = self.hold_of(environment).await?;
        Ok(Some(ReleaseReply {
            release,
            hold,
            approval: None,
        }))
    }

    /// Returns the head, if the release that the user knows is still the newest. Without one, the
    /// newest of the first call counts.
    pub(super) async fn head_on(
        &self,
        environment: &EnvironmentName,
        parent: &mut Option<ReleaseNumber>,
    ) -> Result<StoredHead, ServiceError> {
        let head = self.head(environment).await?;
        let parent = *parent.get_or_insert(number_of(&head));
        self.refuse_stale(environment, parent, &head).await?;
        Ok(head)
    }

    /// Refuses an outdated parent. The error shows what is newer, so that the
    /// user can decide again.
    async fn refuse_stale(
        &self,
        environment: &EnvironmentName,
        parent: ReleaseNumber,
        head: &StoredHead,
    ) -> Result<(), ServiceError> {
        let newest = number_of(head);
        if newest == parent {
            return Ok(());
        }
        if newest < parent {
            return Err(super::no_such_release(environment, parent));
        }
        let newer = self.release(environment, newest).await?.summary;
        let reason = newer
            .reason
            .map_or(String::new(), |why| format!(" ({why})"));
        Err(ServiceError::conflict(
            format!(
                "release {parent} is no longer the newest of `{environment}`: {} created release \
                 {newest}{reason}, which changed {}",
                newer.by,
                match newer.changed {
                    1 => "1 node".to_owned(),
                    nodes => format!("{nodes} nodes"),
                }
            ),
            format!("review it with `bunraku release show {environment} {newest}`, then try again"),
        ))
    }

    async fn chosen(
        &self,
        environment: &EnvironmentName,
        to: &ReleaseTo,
        held: &HeldCatalogs,
    ) -> Result<BTreeSet<NodeName>, ServiceError> {
        Ok(match to {
            ReleaseTo::Everything => held.keys().cloned().collect(),
            ReleaseTo::Nodes { nodes } => {
                if let Some(unknown) = nodes.iter().find(|node| !held.contains_key(*node)) {
                    return Err(nothing_compiled(environment, unknown));
                }
                nodes.iter().cloned().collect()
            }
            ReleaseTo::Percentage { percent } if !choice::is_percentage(*percent) => {
                return Err(ServiceError::invalid(format!(
                    "{percent} is not a percentage: it must be more than 0 and at most 100"
                )));
            }
            ReleaseTo::Percentage { percent } => {
                let nodes = choice::percentage(environment, *percent, held.keys());
                nodes.into_iter().collect()
            }
            ReleaseTo::Query { query } => {
                let found = self.find_nodes.nodes_matching(query).await?;
                let found = found.into_iter();
                found.filter(|node| held.contains_key(node)).collect()
            }
        })
    }

    /// Refuses a selection without nodes. That is a mistake, unlike a selection in which nothing
    /// changed.
    async fn refuse_nobody(
        &self,
        environment: &EnvironmentName,
        head: &StoredHead,
        to: &ReleaseTo,
        held: &HeldCatalogs,
    ) -> Result<(), ServiceError> {
        if held.is_empty() && *to == ReleaseTo::Everything && head.is_some() {
            // The release may still remove nodes that are gone.
            return Ok(());
        }
        if held.is_empty() {
            return Err(ServiceError::conflict(
                format!("no node of `{environment}` has a compiled catalog"),
                format!("see why with `bunraku environment show {environment}`"),
            ));
        }
        let ReleaseTo::Query { query } = to else {
            return Ok(());
        };
        let elsewhere = self.find_nodes.nodes_matching(query).await?.len();
        Err(ServiceError::Invalid {
            message: match elsewhere {
                0 => "the query matches no node".to_owned(),
                1 => format!(
                    "the query matches 1 node, which has no compiled catalog in `{environment}`"
                ),
                nodes => format!(
                    "the query matches {nodes} nodes, none of which has a compiled catalog in `{environment}`"
                ),
            },
            hint: Some(format!(
                "see which nodes it matches with `bunraku node list --query '{query}'`"
            )),
        })
    }

    /// Returns the join rules after a release on a user's request.
    async fn rules_after(
        &self,
        environment: &EnvironmentName,
        rules: &JoinRules,
        request: &CreateRelease,
        release: ReleaseNumber,
        held: &HeldCatalogs,
        chosen: &BTreeSet<NodeName>,
    ) -> Result<JoinRules, ServiceError> {
        let coverage = JoinCoverage::of(environment, &request.to, chosen);
        let (Some(covers), Some(code_id)) = (coverage, self.newest_code(held, chosen).await?)
        else {
            return Ok(rules.clone());
        };
        let is_for_all = covers == JoinCoverage::All;
        let mut rules = rules.with(JoinRule {
            release,
            mode: request.mode,
            covers,
            code_id: code_id.clone(),
        });
        if is_for_all {
            let released: BTreeSet<&CodeId> = held.values().map(|held| &held.code_id).collect();
            (rules.rolled_back).retain(|code| *code != code_id && !released.contains(code));
        }
        Ok(rules)
    }

    /// Returns the map without nodes that are gone or now belong to another environment.
    pub(super) async fn present(
        &self,
        environment: &EnvironmentName,
        mut map: ReleaseMap,
        held: &HeldCatalogs,
    ) -> Result<ReleaseMap, ServiceError> {
        let without: Vec<NodeName> = map
            .keys()
            .filter(|node| !held.contains_key(*node))
            .cloned()
            .collect();
        for node in without {
            if nodes::environment_of(&*self.store, &node).await?.as_ref() != Some(environment) {
                map.remove(&node);
            }
        }
        Ok(map)
    }

    /// Holds the new catalogs of the map, writes the map, and creates the
    /// release if the head is unchanged.
    pub(super) async fn propose(
        &self,
        environment: &EnvironmentName,
        head: &StoredHead,
        parent: Option<(MapAddress, JoinRules)>,
        proposal: Proposal,
    ) -> Result<ProposalOutcome, ServiceError> {
        let next = next_number(head);
        let (parent, rules) = parent.unzip();
        let same_rules = (rules.unwrap_or_default()).is_same_for_nodes(&proposal.join_rules);
        let brought: Vec<&MapEntry> = proposal
            .map
            .values()
            .filter(|entry| entry.since == next)
            .collect();
        let before = match &parent {
            Some(parent) => self.maps.read(parent).await?.len(),
            None => 0,
        };
        if brought.is_empty() && proposal.map.len() == before && same_rules {
            return Ok(ProposalOutcome::NothingToDo);
        }
        if !self.hold_catalogs(environment, &brought).await? {
            return Ok(ProposalOutcome::Overtaken);
        }
        let summary = ReleaseSummary {
            environment: environment.clone(),
            number: next,
            parent: head.as_ref().map(|head| head.document.number),
            created: self.clock.now(),
            by: proposal.by.clone(),
            reason: proposal.reason.clone(),
            kind: proposal.kind.clone(),
            mode: proposal.mode,
            code_id: common_code(&brought),
            nodes: proposal.map.len(),
            changed: brought.len(),
        };
        let written = self.maps.write(&proposal.map, parent.as_ref()).await?;
        let release = Release {
            id: Uuid::new_v4(),
            summary,
            map: written.address,
            join_rules: Some(proposal.join_rules),
            codes: (brought.iter())
                .filter_map(|entry| entry.code_id.clone())
                .collect(),
        };
        let committed = self
            .commit(environment, head, &release, proposal.hold)
            .await;
        for pinned in written.pins {
            pinned.pin.release().await.map_err(map_error)?;
        }
        Ok(if committed? {
            ProposalOutcome::Released(Box::new(release.summary))
        } else {
            ProposalOutcome::Overtaken
        })
    }

    /// Holds the catalogs. Returns false if one of them is no longer stored,
    /// because a newer one was compiled.
    async fn hold_catalogs(
        &self,
        environment: &EnvironmentName,
        entries: &[&MapEntry],
    ) -> Result<bool, ServiceError> {
        let holder = holder(environment);
        // Nodes with fully equal catalogs share one.
        let catalogs: BTreeSet<CatalogId> =
            entries.iter().filter_map(|entry| entry.catalog).collect();
        let catalogs: Vec<CatalogId> = catalogs.into_iter().collect();
        for batch in catalogs.chunks(HOLDS_PER_TRANSACTION) {
            let held = compare_and_swap(&*self.store, |_| self.hold_batch(batch, &holder));
            if !held.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Holds catalogs. The result is false if one is gone.
    async fn hold_batch(
        &self,
        catalogs: &[CatalogId],
        holder: &str,
    ) -> Result<Swap<bool>, ServiceError> {
        let mut transaction = Transaction::new();
        for catalog in catalogs {
            let held = self.catalogs.hold_in(transaction, *catalog, holder);
            transaction = match held.await {
                Ok(transaction) => transaction,
                Err(CatalogError::Missing(_)) => return Ok(Swap::Done(false)),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(Swap::Write(transaction, true))
    }

    /// Commits the transaction that creates the release. Returns false if the head changed.
    async fn commit(
        &self,
        environment: &EnvironmentName,
        head: &StoredHead,
        release: &Release,
        hold: Option<ReleaseHold>,
    ) -> Result<bool, ServiceError> {
        let number = release.summary.number;
        let referrer = format!("release/{environment}/{number}");
        let head_key = keys::release_head(environment);
        let release_key = keys::release(environment, number);
        let next = ReleaseHead {
            number,
            collections: head.as_ref().map_or(0, |head| head.document.collections),
        };
        let known = head.as_ref().map(|head| &head.entry);
        let (head_key, release_key, referrer) = (&head_key, &release_key, &referrer);
        let (next, hold) = (&next, &hold);
        compare_and_swap(&*self.store, |_| async move {
            let now = self.store.get(head_key).await?;
            if now.map(|now| now.modified) != known.map(|known| known.modified) {
                // Written by another server, or by this one if an answer was lost.
                let there: Option<document::Versioned<Release>> =
                    document::read(&*self.store, release_key).await?;
                let is_ours = there.is_some_and(|there| there.document.id == release.id);
                return Ok(Swap::Done(is_ours));
            }
            // The head of two servers would be the same; the release is not.
            let mut transaction = Transaction::new()
                .when_unchanged(head_key, known)
                .when(Compare::Absent(release_key.clone()))
                .put(head_key, document::encode(next))
                .put(release_key, document::encode(release));
            if let Some(hold) = hold {
                let key = keys::release_hold(environment);
                transaction = transaction.put(key, document::encode(hold));
            }
            if release.summary.kind == ReleaseKind::Auto {
                // An operator's release is recorded with the request.
                let summary = &release.summary;
                let code = summary.code_id.as_ref().map(ToString::to_string);
                let action = AuditAction::new("create-release")
                    .on("environment", environment)
                    .detail("release", number.0)
                    .detail("code_id", code)
                    .detail("nodes", summary.nodes)
                    .detail("changed", summary.changed)
                    .because(Some("the release policy is `auto`"));
                transaction = self.audit.record_in(transaction, action);
            }
            for blob in [Some(release.map.base), release.map.changes]
                .into_iter()
                .flatten()
            {
                let referred = self.blobs.reference_in(transaction, blob, referrer);
                transaction = referred.await.map_err(map_error)?;
            }
            let transaction = self.reactors.release_made(transaction, &release.summary);
            Ok(Swap::Write(transaction, true))
        })
        .await
    }
}

/// A release as it would be created now.
#[derive(Clone, PartialEq, Debug)]
pub struct ProposedRelease {
    /// The newest release.
    pub parent: ReleaseNumber,
    /// The digest of the catalog that each node would get.
    pub digest: String,
    /// The number of nodes that would get another catalog.
    pub nodes: usize,
}

/// Returns the digest of everything that decides what a release does.
fn digest_of(
    head: &StoredHead,
    request: &CreateRelease,
    held: &HeldCatalogs,
    chosen: &BTreeSet<NodeName>,
) -> String {
    let catalogs: std::collections::BTreeMap<&NodeName, CatalogId> = chosen
        .iter()
        .filter_map(|node| Some((node, held.get(node)?.catalog)))
        .collect();
    let body = serde_json::json!({
        "parent": number_of(head),
        "to": request.to,
        "mode": request.mode,
        "catalogs": catalogs,
    });
    content_id_of_json(&body).to_string()
}

/// Returns the map with the newest catalogs of the chosen nodes.
pub(super) fn overlaid(
    mut map: ReleaseMap,
    held: &HeldCatalogs,
    chosen: &BTreeSet<NodeName>,
    mode: RunMode,
    next: ReleaseNumber,
) -> ReleaseMap {
    for node in chosen {
        let Some(held) = held.get(node) else {
            continue;
        };
        let entry = MapEntry {
            catalog: Some(held.catalog),
            mode,
            since: next,
            code_id: Some(held.code_id.clone()),
        };
        put(&mut map, node, entry);
    }
    map
}

/// Adds an entry. If nothing changes for the node, its entry stays as it is.
pub(super) fn put(map: &mut ReleaseMap, node: &NodeName, entry: MapEntry) {
    match map.get(node) {
        Some(known) if known.is_same_for_the_node(&entry) => {}
        _ => {
            map.insert(node.clone(), entry);
        }
    }
}

fn common_code(entries: &[&MapEntry]) -> Option<CodeId> {
    let mut released = entries.iter().filter(|entry| entry.catalog.is_some());
    let first = released.next()?.code_id.as_ref()?;
    let common = released.all(|entry| entry.code_id.as_ref() == Some(first));
    common.then(|| first.clone())
}

pub(super) fn next_number(head: &StoredHead) -> ReleaseNumber {
    ReleaseNumber(number_of(head).0 + 1)
}

pub(super) fn too_many_turns(environment: &EnvironmentName) -> ServiceError {
    ServiceError::Busy {
        message: format!(
            "`{environment}` keeps changing while the release is created; nothing was done"
        ),
    }
}

fn nothing_compiled(environment: &EnvironmentName, node: &NodeName) -> ServiceError {
    ServiceError::Conflict {
        message: format!("`{node}` has no compiled catalog in `{environment}`"),
        hint: Some(format!(
            "list the compiled catalogs with `bunraku catalog list --environment {environment}`"
        )),
    }
}
