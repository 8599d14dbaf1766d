//! The stored record of a once task, and its status. Pure.

use std::collections::BTreeMap;

use bunraku_model::{NodeName, Role};
use bunraku_wire::api::once::{
    AttemptOutcome, OnceAttempt, OnceEvent, OncePermissions, OnceStatus,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::definition::{Definition, Expected, Retry};
use super::permitted::{self, OnceRole};
use crate::permission::CueCaller;

/// The number of events kept for each task.
pub(super) const HISTORY: usize = 20;

/// Definition and fragments: one document, so that one compare covers both.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Parts {
    pub(super) definition: Option<AuthoredDefinition>,
    #[serde(default)]
    pub(super) fragments: BTreeMap<NodeName, Map<String, Value>>,
    /// What operators permit nodes, besides what their definition permits.
    #[serde(default)]
    pub(super) permissions: OncePermissions,
}

/// A definition and its author.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct AuthoredDefinition {
    pub(super) document: Map<String, Value>,
    pub(super) by: NodeName,
    pub(super) role: Role,
    pub(super) at: Timestamp,
}

/// The attempts so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    /// The last token. It never decreases, not even with a reset.
    pub(super) last_token: u64,
    /// The number of attempts since the last reset.
    pub(super) attempts: u64,
    pub(super) last: Option<OnceAttempt>,
    /// The history, newest last, without the last attempt.
    #[serde(default)]
    pub(super) history: Vec<OnceEvent>,
}

/// The claim: bound to the claimant's lease, deleted when that ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) token: u64,
    pub(super) by: String,
}

/// Everything about one task, at one revision.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) parts: Parts,
    pub(super) state: State,
    pub(super) claim: Option<Claim>,
}

impl Record {
    /// Returns the newest attempt. One that is marked running, without a claim, was abandoned.
    pub(super) fn last(&self) -> Option<OnceAttempt> {
        let mut attempt = self.state.last.clone()?;
        let claimed = self
            .claim
            .as_ref()
            .is_some_and(|claim| claim.token == attempt.token);
        if attempt.outcome == AttemptOutcome::Running && !claimed {
            attempt.outcome = AttemptOutcome::Abandoned;
        }
        Some(attempt)
    }

    /// Returns whether an init by this caller would be accepted, and if not, why not.
    ///
    /// `queried` lists the nodes that the definition's query finds, if it has one.
    pub(super) fn status_for(
        &self,
        asker: CueCaller<'_>,
        role: OnceRole,
        retry: bool,
        queried: &[NodeName],
    ) -> OnceStatus {
        if role == OnceRole::Stranger {
            return OnceStatus::NotReady {
                missing: vec![permitted::missing(asker)],
                failed: None,
            };
        }
        let last = self.last();
        match &last {
            Some(attempt) if attempt.outcome == AttemptOutcome::Running => {
                return OnceStatus::Busy {
                    attempt: attempt.clone(),
                };
            }
            Some(attempt) if matches!(attempt.outcome, AttemptOutcome::Done { .. }) => {
                return OnceStatus::Done {
                    attempt: attempt.clone(),
                };
            }
            _ => {}
        }
        if role == OnceRole::Contributor {
            return OnceStatus::NotReady {
                missing: vec![permitted::missing(asker)],
                failed: None,
            };
        }
        let missing = self.missing(asker, retry, last.as_ref(), queried);
        if missing.is_empty() {
            OnceStatus::Ready
        } else {
            OnceStatus::NotReady {
                failed: last.filter(|_| self.would_be_ready(asker, queried)),
                missing,
            }
        }
    }

    /// Returns whether only the failed attempt prevents an init.
    fn would_be_ready(&self, asker: CueCaller<'_>, queried: &[NodeName]) -> bool {
        self.missing(asker, true, None, queried).is_empty()
    }

    fn missing(
        &self,
        asker: CueCaller<'_>,
        retry: bool,
        last: Option<&OnceAttempt>,
        queried: &[NodeName],
    ) -> Vec<String> {
        let Some(defined) = &self.parts.definition else {
            return vec!["its definition".to_owned()];
        };
        let definition = match Definition::parse(defined.document.clone()) {
            Ok(definition) => definition,
            Err(error) => return vec![format!("a valid definition: {error}")],
        };
        let mut missing = self.missing_hosts(&definition.expected, queried);
        if !trusts(asker, defined) {
            missing.push(format!(
                "a definition by an operator or by `{}` itself, not by `{}`",
                asker.name, defined.by
            ));
        }
        // Nodes were checked with what operators permit. An operator's machine, and a node with a
        // definition of its own, obey the definition as well.
        if !definition.init_on.is_empty()
            && (asker.is_operator() || defined.role != Role::Operator)
            && !definition
                .init_on
                .iter()
                .any(|entry| entry.matches(asker.name, asker.extensions) == Some(true))
        {
            missing.push(format!("`{}` in the definition's `init_on`", asker.name));
        }
        if let Some(attempt) = last
            && !retry
            && !may_repeat(definition.retry, self.state.attempts)
        {
            missing.push(format!(
                "a reset or `--retry`: attempt {} by `{}` {}",
                attempt.token,
                attempt.by,
                ended(&attempt.outcome)
            ));
        }
        missing
    }

    fn missing_hosts(&self, expected: &Expected, queried: &[NodeName]) -> Vec<String> {
        let absent = |hosts: &[NodeName]| {
            hosts
                .iter()
                .filter(|host| !self.parts.fragments.contains_key(*host))
                .map(|host| format!("the fragment of `{host}`"))
                .collect()
        };
        match expected {
            Expected::Nobody => Vec::new(),
            Expected::Number(number) => {
                let there = self.parts.fragments.len() as u64;
                if there < *number {
                    vec![format!("{} of {number} fragments", number - there)]
                } else {
                    Vec::new()
                }
            }
            Expected::Hosts(hosts) => absent(hosts),
            // A query that finds no nodes means that it is too early, not that all are present.
            Expected::Query(query) if queried.is_empty() => {
                vec![format!("hosts: `{query}` matches none")]
            }
            Expected::Query(_) => absent(queried),
        }
    }
}

/// Returns whether the asker may run the definition. A node runs an operator's
/// definition or its own, never another node's.
fn trusts(asker: CueCaller<'_>, defined: &AuthoredDefinition) -> bool {
    defined.role == Role::Operator || defined.by == *asker.name
}

fn may_repeat(retry: Retry, attempts: u64) -> bool {
    match retry {
        Retry::Never => false,
        Retry::Times(times) => attempts <= times,
        Retry::Always => true,
    }
}

fn ended(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Failed { exit_code, .. } => format!("failed with exit code {exit_code}"),
        AttemptOutcome::Abandoned => "was abandoned".to_owned(),
        AttemptOutcome::Running => "is running".to_owned(),
        AttemptOutcome::Done { .. } => "succeeded".to_owned(),
    }
}

impl State {
    /// Returns the state with the next attempt; the last one moves to the history as it ended.
    pub(super) fn with_attempt(&self, attempt: OnceAttempt, last: Option<OnceAttempt>) -> Self {
        let mut next = self.clone();
        next.history.extend(last.map(OnceEvent::Attempt));
        next.last_token = attempt.token;
        next.attempts += 1;
        next.last = Some(attempt);
        next
    }

    pub(super) fn with_reset(
        &self,
        by: &str,
        reason: &str,
        at: Timestamp,
        last: Option<OnceAttempt>,
    ) -> Self {
        let mut next = self.clone();
        next.history.extend(last.map(OnceEvent::Attempt));
        next.history.push(OnceEvent::Reset {
            by: by.to_owned(),
            reason: reason.to_owned(),
            at,
        });
        next.attempts = 0;
        next.last = None;
        next
    }

    /// Removes events that are too old. Returns the tokens whose logs must be deleted too.
    pub(super) fn forget_old(&mut self) -> Vec<u64> {
        let surplus = self.history.len().saturating_sub(HISTORY);
        self.history
            .drain(..surplus)
            .filter_map(|event| match event {
                OnceEvent::Attempt(attempt) => Some(attempt.token),
                OnceEvent::Reset { .. } => None,
            })
            .collect()
    }
}
