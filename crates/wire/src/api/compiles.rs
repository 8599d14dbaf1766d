//! The compile queue and compile results.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, FactSetId, NodeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CompileProblem;

/// The reason for a compile.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CompileReason {
    /// An operator's request.
    Person,
    /// A deploy by an operator.
    Code,
    /// A deploy by a webhook.
    Hook,
    /// The node's facts changed.
    Facts,
    /// The holder of a lock that its code reads has changed.
    Lock,
    /// The answer to a question of its code about other nodes changed.
    Answers,
}

impl CompileReason {
    /// Returns the priority; lower comes first. Operators wait for results, facts do not.
    pub fn priority(self) -> u8 {
        match self {
            Self::Person => 0,
            Self::Code | Self::Hook => 1,
            Self::Facts | Self::Lock | Self::Answers => 2,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Code => "code",
            Self::Hook => "hook",
            Self::Facts => "facts",
            Self::Lock => "lock",
            Self::Answers => "answers",
        }
    }
}

/// The nodes to compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompileSelection {
    #[schema(value_type = Vec<String>)]
    Nodes(Vec<NodeName>),
    #[schema(value_type = String)]
    Environment(EnvironmentName),
    All,
}

/// The compiles that were queued.
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
    /// The time of its first request.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The time of its newest request.
    #[schema(value_type = String, format = DateTime)]
    pub requested: Timestamp,
    /// The start of the compile, if it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
}

/// A request for the compile status of nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileStatusRequest {
    #[schema(value_type = Vec<String>)]
    pub nodes: Vec<NodeName>,
    /// Delay the answer until none of them is queued, for at most this long.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// The compile status of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompileStatus {
    #[schema(value_type = String)]
    pub node: NodeName,
    /// `true` if the node is queued again.
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
    /// Messages of the compiler: warnings and `notice()` calls.
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

/// The outcome of a compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CompileOutcome {
    Compiled {
        #[schema(value_type = String)]
        catalog: CatalogId,
        resources: usize,
        /// `true` if the catalog differs from the previous one.
        changed: bool,
    },
    /// The compile failed. The previous catalog stays.
    Failed {
        problems: Vec<CompileProblem>,
        /// `true` if the compile killed its process repeatedly. It is tried again
        /// when its inputs change, or when an operator requests it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        quarantined: bool,
    },
    /// The environment has no code yet.
    NoCode,
    /// The node has sent no facts yet.
    NoFacts,
}
