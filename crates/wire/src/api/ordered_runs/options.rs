//! How to carry out a plan.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A number of nodes, or a part of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    Count(u32),
    Percent(u8),
}

/// Text that says no share.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a number nor a percentage like `20%`")]
pub struct ShareError(String);

impl Share {
    /// At least this many of so many.
    pub fn at_least(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => (all * usize::from(percent)).div_ceil(100),
        }
    }

    /// At most this many of so many.
    pub fn at_most(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => all * usize::from(percent) / 100,
        }
    }
}

impl FromStr for Share {
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

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// What a failed node means for those that do not wait for it.
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
    /// Only say what would change.
    #[serde(default)]
    pub noop: bool,
    /// At most so many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Share>,
    /// So many first; the others when all of these succeeded.
    #[serde(default)]
    pub canary: u32,
    /// More failures than this, and nothing new starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<Share>,
    #[serde(default)]
    pub on_failure: OnFailure,
    /// A group starts when the one before it is over.
    #[serde(default)]
    pub by_group: bool,
    /// For the work of one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_timeout_seconds: Option<u64>,
    /// From asking a node to its start: it may have other runs to end first.
    #[serde(default = "start_timeout")]
    pub start_timeout_seconds: u64,
    /// A node that is away for longer is lost.
    #[serde(default = "lost_after")]
    pub lost_after_seconds: u64,
    /// How long a cancelled node may take to confirm.
    #[serde(default = "cancel_grace")]
    pub cancel_grace_seconds: u64,
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
            node_timeout_seconds: None,
            total_timeout_seconds: None,
            start_timeout_seconds: start_timeout(),
            lost_after_seconds: lost_after(),
            cancel_grace_seconds: cancel_grace(),
        }
    }
}

impl RunOptions {
    /// How many may fail before the run stops.
    pub fn tolerated(&self, steps: usize) -> usize {
        match (self.max_failures, self.on_failure) {
            (Some(most), _) => most.at_most(steps),
            (None, OnFailure::ContinueIndependent) => usize::MAX,
            (None, OnFailure::Stop) => 0,
        }
    }

    /// How many may run at a time.
    pub fn at_once(&self, steps: usize) -> usize {
        self.batch
            .map_or(usize::MAX, |batch| batch.at_least(steps).max(1))
    }
}
