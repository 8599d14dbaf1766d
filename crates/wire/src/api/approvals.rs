//! Approvals: runs and releases that someone other than the requester has to approve.

use bunraku_model::{ReleaseNumber, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CreateRelease;
use super::ordered_runs::PlanId;

/// The default time within which a request must be approved, and for which an approval is valid.
pub const DEFAULT_EXPIRY_SECONDS: u64 = 24 * 3_600;

/// What an environment requires approval for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalPolicy {
    /// Ordered runs that may change something.
    pub runs: bool,
    /// Releases, except rollbacks.
    pub releases: bool,
    /// The time within which a request must be approved, and for which an approval is valid.
    pub expires_seconds: u64,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            runs: false,
            releases: false,
            expires_seconds: DEFAULT_EXPIRY_SECONDS,
        }
    }
}

impl ApprovalPolicy {
    /// Returns the word for the policy: `off`, `runs`, `releases` or `all`.
    pub fn as_str(&self) -> &'static str {
        match (self.runs, self.releases) {
            (false, false) => "off",
            (true, false) => "runs",
            (false, true) => "releases",
            (true, true) => "all",
        }
    }
}

/// What is to be approved. It is fixed: something else needs another approval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "subject", rename_all = "snake_case")]
pub enum ApprovalSubject {
    Run {
        #[schema(value_type = String)]
        run: RunId,
        plan: PlanId,
        nodes: usize,
    },
    Release {
        request: CreateRelease,
        /// The newest release when it was requested.
        #[schema(value_type = u64)]
        parent: ReleaseNumber,
        /// The digest of the catalog that each node would get.
        digest: String,
        /// The number of nodes that would get another catalog.
        nodes: usize,
    },
}

/// The decision about a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDecision {
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub kind: DecisionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    Approved,
    Rejected,
    /// The requester went ahead without approval, for the given reason.
    Overridden,
}

/// A request for approval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    /// The id; for a run, the id of the run.
    pub id: String,
    pub environment: String,
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    pub requested_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub requested: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
    /// What became of an approved release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl Approval {
    /// Returns `pending`, `expired`, `approved`, `rejected` or `overridden`.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match self.decision.as_ref().map(|decision| decision.kind) {
            Some(DecisionKind::Approved) => "approved",
            Some(DecisionKind::Rejected) => "rejected",
            Some(DecisionKind::Overridden) => "overridden",
            None if self.expires <= now => "expired",
            None => "pending",
        }
    }
}

/// A decision about a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    pub approve: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a run was approved, or that it is not yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "approval", rename_all = "snake_case")]
pub enum RunApproval {
    /// Someone other than the requester has to approve it.
    Pending {
        id: String,
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// The same plan was approved before.
    Given { id: String, by: String },
    /// The requester went ahead without approval.
    Overridden { reason: String },
}
