//! Environments: code from git, and what became of each deploy.

use bunraku_model::{CodeId, EnvironmentName, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What becomes of catalogs that were compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleasePolicy {
    /// Released as they are compiled.
    Auto,
    /// Held until somebody releases them.
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

/// A new environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewEnvironment {
    #[schema(value_type = String)]
    pub name: EnvironmentName,
    /// `https://…`, `ssh://…`, `user@host:path`, `file://…` or an absolute path.
    pub url: String,
    /// The repository's own default branch when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default)]
    pub policy: ReleasePolicy,
    /// Facts that do not count, as dotted paths; the servers' own list when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<Vec<String>>,
}

/// What is to change; the rest stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ReleasePolicy>,
    /// Facts that do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<VolatileChange>,
    /// Make a new secret for the webhook.
    #[serde(default)]
    pub new_hook_secret: bool,
}

/// Which facts do not count from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolatileChange {
    /// These, as dotted paths.
    Facts(Vec<String>),
    /// Those that the servers' own settings name.
    Usual,
}

/// The answer to making or changing one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentChanged {
    pub environment: EnvironmentSummary,
    /// Shown once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_secret: Option<String>,
}

/// One environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentSummary {
    #[schema(value_type = String)]
    pub name: EnvironmentName,
    /// Without its password.
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub policy: ReleasePolicy,
    /// Facts that do not count here; the servers' own list when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<Vec<String>>,
    /// The code that nodes are compiled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed: Option<Deployed>,
    pub progress: CompileProgress,
}

/// The code that an environment's nodes are compiled with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Deployed {
    #[schema(value_type = String)]
    pub code_id: CodeId,
    /// The deploy that brought it.
    pub number: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The compiler that the code asks for.
    pub compiler: String,
}

/// How far the nodes of an environment are with its deployed code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CompileProgress {
    pub nodes: usize,
    pub compiled: usize,
    pub failed: usize,
    /// In the queue, or being compiled.
    pub waiting: usize,
    /// Without facts yet: nothing can be compiled for them.
    pub without_facts: usize,
}

/// One environment with its history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentDetail {
    #[serde(flatten)]
    pub summary: EnvironmentSummary,
    /// The newest first.
    pub deploys: Vec<Deploy>,
    /// What is wrong now, equal failures together.
    pub failures: Vec<FailureGroup>,
}

/// Nodes that fail in the same way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    #[schema(value_type = String)]
    pub code_id: CodeId,
    pub problems: Vec<CompileProblem>,
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

/// One thing that is wrong with code, and where.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, ToSchema,
)]
pub struct CompileProblem {
    pub message: String,
    /// Below the environment's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Take code into use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DeployRequest {
    /// A commit; the newest of the branch when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// One deploy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Deploy {
    pub number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    pub by: String,
    /// A webhook's deploy of what is deployed already does nothing.
    #[serde(default)]
    pub hook: bool,
    #[schema(value_type = String, format = DateTime)]
    pub requested: Timestamp,
    pub state: DeployState,
}

/// Where a deploy stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeployState {
    Waiting,
    /// The code is in use; its nodes are being put into the compile queue.
    Queueing {
        #[schema(value_type = String)]
        code_id: CodeId,
    },
    /// Every node of the environment is in the queue, or through it.
    Deployed {
        #[schema(value_type = String)]
        code_id: CodeId,
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        nodes: usize,
    },
    /// Nothing changed: this commit is in use already.
    Unchanged {
        #[schema(value_type = String)]
        code_id: CodeId,
    },
    /// Nothing changed: the code before stays in use.
    Failed {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        problem: CompileProblem,
    },
    /// A newer deploy came before this one began.
    Superseded {
        by: u64,
    },
}

impl DeployState {
    /// Nothing more comes.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Waiting | Self::Queueing { .. })
    }
}

/// A deploy with what its code did so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeployStatus {
    pub deploy: Deploy,
    pub progress: CompileProgress,
    pub failures: Vec<FailureGroup>,
    /// Neither the deploy nor the compiles that it asked for go on.
    pub finished: bool,
}

/// What a webhook's delivery led to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HookReply {
    /// The deploy that it asked for, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<u64>,
    pub message: String,
}

/// Give a node to an environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AssignRequest {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
}
