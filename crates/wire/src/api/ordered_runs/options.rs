//! The options of a run.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rollout::RolloutCheck;

/// A number or a percentage of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeLimit {
    Count(u32),
    Percent(u8),
}

/// The error for text that is neither a number nor a percentage.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a number nor a percentage such as `20%`")]
pub struct ShareError(String);

impl NodeLimit {
    /// Returns this share of `all`, rounded up.
    pub fn at_least(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => (all * usize::from(percent)).div_ceil(100),
        }
    }

    /// Returns this share of `all`, rounded down.
    pub fn at_most(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => all * usize::from(percent) / 100,
        }
    }
}

impl FromStr for NodeLimit {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ShareError(text.to_owned());
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(refuse()),
            },
            None => text.parse().map(Self::Count).map_err(|_| refuse()),
        }
    }
}

impl std::fmt::Display for NodeLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The effect of a failed node on nodes that do not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Nothing new starts.
    #[default]
    Stop,
    ContinueIndependent,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// `true` to report what would change without changing it.
    #[serde(default)]
    pub noop: bool,
    /// The maximum number of nodes that run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<NodeLimit>,
    /// The number of canary nodes. The others start when all canaries have succeeded.
    #[serde(default)]
    pub canary: u32,
    /// The maximum number of failures. With more, nothing new starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<NodeLimit>,
    #[serde(default)]
    pub on_failure: OnFailure,
    /// `true` if a group starts only after the previous group has ended.
    #[serde(default)]
    pub by_group: bool,
    /// The time for which the canaries are observed before the checks. Nothing starts meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub soak_seconds: u64,
    /// Checks that must pass before the other nodes start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<RolloutCheck>,
    /// The time within which all checks must pass.
    #[serde(default = "check_timeout", skip_serializing_if = "is_check_timeout")]
    pub check_timeout_seconds: u64,
    /// The fact that forms batches, such as `rack`. Nodes with another value start only when all
    /// running nodes have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_by: Option<String>,
    /// `true` if soak time and checks apply after each batch, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gate_each_batch: bool,
    /// The maximum number of nodes that run or have failed at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<NodeLimit>,
    /// The maximum number of nodes that had drifted. With more, nothing new starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_drift: Option<NodeLimit>,
    /// The time limit for the run of one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_timeout_seconds: Option<u64>,
    /// The time limit from the request to the start on a node, which may have other runs to finish
    /// first.
    #[serde(default = "start_timeout")]
    pub start_timeout_seconds: u64,
    /// The time after which a disconnected node counts as lost.
    #[serde(default = "lost_after")]
    pub lost_after_seconds: u64,
    /// The time limit for a cancelled node to confirm.
    #[serde(default = "cancel_grace")]
    pub cancel_grace_seconds: u64,
}

fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

fn check_timeout() -> u64 {
    3_600
}

fn is_check_timeout(seconds: &u64) -> bool {
    *seconds == check_timeout()
}

fn start_timeout() -> u64 {
    600
}

fn lost_after() -> u64 {
    60
}

fn cancel_grace() -> u64 {
    60
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            noop: false,
            batch: None,
            canary: 0,
            max_failures: None,
            on_failure: OnFailure::Stop,
            by_group: false,
            soak_seconds: 0,
            checks: Vec::new(),
            check_timeout_seconds: check_timeout(),
            batch_by: None,
            gate_each_batch: false,
            max_unavailable: None,
            max_drift: None,
            node_timeout_seconds: None,
            total_timeout_seconds: None,
            start_timeout_seconds: start_timeout(),
            lost_after_seconds: lost_after(),
            cancel_grace_seconds: cancel_grace(),
        }
    }
}

impl RunOptions {
    /// Returns how many nodes may fail before the run stops.
    pub fn tolerated(&self, steps: usize) -> usize {
        match (self.max_failures, self.on_failure) {
            (Some(most), _) => most.at_most(steps),
            (None, OnFailure::ContinueIndependent) => usize::MAX,
            (None, OnFailure::Stop) => 0,
        }
    }

    /// Returns whether the run pauses between its parts.
    pub fn has_gates(&self) -> bool {
        self.soak_seconds > 0 || !self.checks.is_empty()
    }

    /// Returns why the options contradict each other.
    pub fn problem(&self) -> Option<&'static str> {
        let pauses = self.canary > 0 || (self.gate_each_batch && self.batch_by.is_some());
        if self.has_gates() && !pauses {
            return Some(
                "a soak time or a check needs canaries, or batches with a gate after each",
            );
        }
        if self.gate_each_batch && self.batch_by.is_none() {
            return Some("a gate after each batch needs a fact that forms batches");
        }
        if self.gate_each_batch && !self.has_gates() {
            return Some("a gate after each batch needs a soak time or a check");
        }
        None
    }

    /// Returns how many nodes may run at a time.
    pub fn at_once(&self, steps: usize) -> usize {
        self.batch
            .map_or(usize::MAX, |batch| batch.at_least(steps).max(1))
    }
}
