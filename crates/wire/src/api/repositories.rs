//! Control repositories whose branches are environments.

use bunraku_model::{EnvironmentName, RepositoryName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ReleasePolicy;

/// What becomes of a branch whose name cannot be the name of an environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidBranchNames {
    /// Other characters become `_`, and upper case becomes lower case.
    #[default]
    Correct,
    /// The branch is reported, and is not an environment.
    Error,
}

impl InvalidBranchNames {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Error => "error",
        }
    }
}

/// Which branches are environments, and how they are kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchRules {
    /// Patterns with `*` and `?`; all branches when empty.
    #[serde(default)]
    pub branches: Vec<String>,
    /// Patterns of branches that are not environments.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The environment of branch `main` is `PREFIX_main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    #[serde(default)]
    pub invalid_names: InvalidBranchNames,
    /// The release policy of new environments.
    #[serde(default)]
    pub policy: ReleasePolicy,
    /// Whether an environment is removed with its branch, if it has no nodes.
    #[serde(default = "is_purged_by_default")]
    pub purge: bool,
    /// Seconds between two looks at the branches; never when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
}

fn is_purged_by_default() -> bool {
    true
}

/// A new repository.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewRepository {
    #[schema(value_type = String)]
    pub name: RepositoryName,
    /// `https://…`, `ssh://…`, `user@host:path`, `file://…` or an absolute path.
    pub url: String,
    #[serde(flatten)]
    pub rules: BranchRules,
}

/// What is to change; the rest stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RepositoryChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BranchRules>,
    /// Make a new secret for the webhook.
    #[serde(default)]
    pub new_hook_secret: bool,
}

/// The answer to making or changing one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RepositoryChanged {
    pub repository: RepositorySummary,
    /// Shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_secret: Option<String>,
}

/// One repository, and what its last synchronization found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RepositorySummary {
    #[schema(value_type = String)]
    pub name: RepositoryName,
    /// Without its password.
    pub url: String,
    #[serde(flatten)]
    pub rules: BranchRules,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<RepositorySync>,
    /// Whether a requested synchronization is not finished.
    pub waiting: bool,
}

/// What a synchronization found and did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RepositorySync {
    /// The newest request that it answers.
    pub request: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Why it failed. Then nothing was changed, and `branches` is as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub branches: Vec<BranchState>,
}

/// A branch and its environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BranchState {
    pub branch: String,
    /// The newest commit; absent if the branch is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub environment: Option<EnvironmentName>,
    /// What is unusual about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The number of a requested synchronization.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SyncRequested {
    pub number: u64,
}
