//! The compile queue, and what compiling gave.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, FactSetId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CompileProblem;

/// Why a node is to be compiled.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CompileReason {
    /// Somebody asked.
    Person,
    /// A deploy by a person.
    Code,
    /// A deploy by a webhook.
    Hook,
    /// The node's facts changed.
    Facts,
    /// Somebody else holds a lock that its code asks for.
    Lock,
}

impl CompileReason {
    /// Smaller comes first: a person waits, facts do not.
    pub fn priority(self) -> u8 {
        match self {
            Self::Person => 0,
            Self::Code | Self::Hook => 1,
            Self::Facts | Self::Lock => 2,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Code => "code",
            Self::Hook => "hook",
            Self::Facts => "facts",
            Self::Lock => "lock",
        }
    }
}

/// Which nodes to compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompileSelection {
    #[schema(value_type = Vec<String>)]
    Nodes(Vec<NodeName>),
    #[schema(value_type = String)]
    Environment(EnvironmentName),
    All,
}

/// What was put into the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileRequested {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
}

/// One node in the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuedCompile {
    #[schema(value_type = String)]
    pub node: NodeName,
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    pub reasons: Vec<CompileReason>,
    /// When the first of its requests came.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When the newest came.
    #[schema(value_type = String, format = DateTime)]
    pub requested: Timestamp,
    /// Being compiled since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
}

/// Ask how compiling these nodes went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileStatusRequest {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    /// Hold the answer back until none of them waits, for at most so long.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// What compiling a node gave last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileStatus {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// It is in the queue: a newer outcome is on its way.
    pub waiting: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastCompile>,
}

/// The newest compile of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastCompile {
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fact_set: Option<FactSetId>,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub took_ms: u64,
    pub outcome: CompileOutcome,
    /// What the compiler logged: warnings, and what code reported with `notice()`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CompileNote>,
}

/// One message that the compiler logged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CompileNote {
    /// `notice`, `warning`, `err`, as Puppet has them.
    pub level: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CompileOutcome {
    Compiled {
        #[schema(value_type = String)]
        catalog: CatalogId,
        resources: usize,
        /// The catalog is not the one before.
        changed: bool,
    },
    /// The catalog before stays.
    Failed { problems: Vec<CompileProblem> },
    /// The environment has no code yet.
    NoCode,
    /// The node has sent no facts yet.
    NoFacts,
}
