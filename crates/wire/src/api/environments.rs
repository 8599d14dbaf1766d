//! Environments: code from git, and its deploys.

use bunraku_model::{CodeId, EnvironmentName, NodeName, OrderingMode, RepositoryName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::approvals::ApprovalPolicy;

/// What happens to compiled catalogs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleasePolicy {
    /// Released when they are compiled.
    Auto,
    /// Held until an operator releases them.
    #[default]
    Manual,
}

impl ReleasePolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
        }
    }
}

/// A request to add an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewEnvironment {
    #[schema(value_type = String)]
    pub name: EnvironmentName,
    /// `https://…`, `ssh://…`, `user@host:path`, `file://…` or an absolute path.
    pub url: String,
    /// The branch. Default: the repository's default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default)]
    pub policy: ReleasePolicy,
    /// Facts whose changes are ignored, as dotted paths. Default: the servers' list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<Vec<String>>,
    /// `genius`, `ansible` or `justdoit`; the engine's default when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub order: Option<OrderingMode>,
    /// Seconds between two looks for new commits; never when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
    /// `true` to let the repository run programs on the servers (`compiler: external`).
    #[serde(default)]
    pub allow_external_compiler: bool,
    /// `true` to let the facts of nodes decide which state files and data they get.
    #[serde(default)]
    pub fact_targeting: bool,
    /// `true` to refuse a repository that the server cannot read, or that lacks the branch.
    #[serde(default)]
    pub check_repository: bool,
}

/// A request to change an environment. Absent fields stay unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ReleasePolicy>,
    /// Facts whose changes are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<VolatileChange>,
    /// Seconds between two looks for new commits; 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
    /// `genius`, `ansible` or `justdoit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub order: Option<OrderingMode>,
    /// Use the engine's default order.
    #[serde(default)]
    pub default_order: bool,
    /// `true` to let the repository run programs on the servers (`compiler: external`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_external_compiler: Option<bool>,
    /// Whether the facts of nodes decide which state files and data they get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fact_targeting: Option<bool>,
    /// What requires approval by someone other than the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    /// `true` to create a new webhook secret.
    #[serde(default)]
    pub new_hook_secret: bool,
}

/// The facts whose changes are ignored from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolatileChange {
    /// These, as dotted paths.
    Facts(Vec<String>),
    /// The list in the servers' settings.
    Usual,
}

/// The answer to adding or changing an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentChanged {
    pub environment: EnvironmentSummary,
    /// The webhook secret, shown only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_secret: Option<String>,
}

/// One environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentSummary {
    #[schema(value_type = String)]
    pub name: EnvironmentName,
    /// The URL without its password.
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub policy: ReleasePolicy,
    /// What requires approval by someone other than the requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    /// Facts whose changes are ignored here. Default: the servers' list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<Vec<String>>,
    /// `genius`, `ansible` or `justdoit`; the engine's default when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub order: Option<OrderingMode>,
    /// Whether the facts of nodes decide which state files and data they get.
    #[serde(default)]
    pub fact_targeting: bool,
    /// The code from which catalogs are compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed: Option<DeployedCode>,
    /// The control repository that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub repository: Option<RepositoryName>,
    /// Seconds between two looks for new commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_seconds: Option<u64>,
    /// `true` if the repository may run programs on the servers (`compiler: external`).
    #[serde(default)]
    pub allows_external_compiler: bool,
    /// If present, only a person moves the environment to other code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<EnvironmentPin>,
    pub progress: CompileProgress,
}

/// A deploy of chosen code that pushes do not replace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentPin {
    /// The tag, branch or commit as it was requested.
    pub reference: String,
    #[schema(value_type = String)]
    pub code_id: CodeId,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// The code from which an environment's catalogs are compiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeployedCode {
    #[schema(value_type = String)]
    pub code_id: CodeId,
    /// The number of the deploy.
    pub number: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The compiler that the code selects.
    pub compiler: String,
}

/// The compile progress of an environment's nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CompileProgress {
    pub nodes: usize,
    pub compiled: usize,
    pub failed: usize,
    /// The number of failed nodes whose compile killed its process repeatedly.
    #[serde(default)]
    pub quarantined: usize,
    /// The number of nodes in the queue or being compiled.
    pub waiting: usize,
    /// The number of nodes without facts. They cannot be compiled yet.
    pub without_facts: usize,
}

/// One environment with its history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentDetail {
    #[serde(flatten)]
    pub summary: EnvironmentSummary,
    /// The deploys, newest first.
    pub deploys: Vec<Deploy>,
    /// The current failures, grouped by message.
    pub failures: Vec<FailureGroup>,
    /// The modules and additional repositories of the deployed code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<DeployedModule>,
}

/// A module or an additional repository, at the commit or version that was deployed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeployedModule {
    pub name: String,
    /// Its directory below the environment's root.
    pub path: String,
    /// The address of its repository without a password, or its name on the Forge.
    pub source: String,
    /// The branch, tag or version that the code asks for; the default branch or newest release
    /// when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit, or the version of a release.
    pub version: String,
    /// The hash of the archive of a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Nodes with the same failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    #[schema(value_type = String)]
    pub code_id: CodeId,
    pub problems: Vec<CompileProblem>,
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

/// A problem in code, with its location.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, ToSchema,
)]
pub struct CompileProblem {
    pub message: String,
    /// The file, relative to the environment's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A request to deploy code.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DeployRequest {
    /// A commit, tag or branch; the newest of the environment's branch when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Pin the environment to `commit`, so that pushes do not move it.
    #[serde(default = "is_pinned_by_default")]
    pub pin: bool,
}

fn is_pinned_by_default() -> bool {
    true
}

/// One deploy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Deploy {
    pub number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The environment stays at `commit` until the pin is lifted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin: bool,
    pub by: String,
    /// `true` if a webhook requested it. It does nothing if the commit is deployed already.
    #[serde(default)]
    pub hook: bool,
    #[schema(value_type = String, format = DateTime)]
    pub requested: Timestamp,
    pub state: DeployState,
}

/// The state of a deploy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeployState {
    Waiting,
    /// The code is in use. Its nodes are being added to the compile queue.
    Queueing {
        #[schema(value_type = String)]
        code_id: CodeId,
    },
    /// All nodes of the environment were added to the compile queue.
    Deployed {
        #[schema(value_type = String)]
        code_id: CodeId,
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        nodes: usize,
    },
    /// The commit was deployed already.
    Unchanged {
        #[schema(value_type = String)]
        code_id: CodeId,
    },
    /// The deploy failed. The previous code stays in use.
    Failed {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        problem: CompileProblem,
    },
    /// A newer deploy replaced this one before it began.
    Superseded {
        by: u64,
    },
}

impl DeployState {
    /// Returns `true` if the deploy has ended.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Queueing { .. })
    }
}

/// A deploy with its compile progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeployStatus {
    pub deploy: Deploy,
    pub progress: CompileProgress,
    pub failures: Vec<FailureGroup>,
    /// The modules and additional repositories of its code, while the code is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<DeployedModule>,
    /// `true` if the deploy and all its compiles have ended.
    pub finished: bool,
}

/// The answer to a webhook's delivery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HookReply {
    /// The number of the deploy that it started, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<u64>,
    pub message: String,
}

/// A request to assign a node to an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AssignRequest {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
}
