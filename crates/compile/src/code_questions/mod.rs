//! Questions that code asks about other nodes while it is compiled: collectors
//! of exported resources, and queries.
//!
//! The index answers them ([`AnswerCode`]). All answers to one compile are from
//! one state of the index ([`CodeSession`]). Each has a digest, by which a
//! later change of the answer is recognised.

mod session;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bunraku_control::ServiceError;
use bunraku_model::{ContentId, NodeName};
use bunraku_query::ExportSum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

pub use session::{AskError, CodeSession};

/// One question, in the form in which workers ask it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeQuestion {
    /// Exported resources of other nodes.
    Collect {
        #[serde(rename = "type")]
        type_name: String,
        /// Puppet's form of the condition: `[field, "==", value]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<Value>,
    },
    /// A query: a text, or nested lists.
    Query(Value),
}

/// An answer for one node.
#[derive(Clone, Debug)]
pub struct CodeAnswer {
    /// A list, or the reason why the question has no answer.
    pub answer: Result<Value, String>,
    pub digest: String,
}

/// The digests of an answer, for every node that may have received it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerDigests {
    /// Resources by node. A node does not receive its own.
    Collected {
        total: ExportSum,
        by_node: BTreeMap<NodeName, ExportSum>,
    },
    /// The same for all nodes.
    Same {
        digest: String,
        /// The answer may change because of a compile.
        reads_catalogs: bool,
    },
}

impl AnswerDigests {
    pub fn for_reader(&self, reader: &NodeName) -> String {
        match self {
            Self::Collected { total, by_node } => {
                let own = by_node.get(reader).copied().unwrap_or_default();
                total.without(own).to_hex()
            }
            Self::Same { digest, .. } => digest.clone(),
        }
    }

    /// Returns the digests of an answer that is the same for all nodes.
    pub(crate) fn same(answer: &Result<Value, String>, reads_catalogs: bool) -> Self {
        let digest = match answer {
            Ok(value) => bunraku_model::content_id_of_json(value),
            Err(message) => ContentId::of(message.as_bytes()),
        };
        Self::Same {
            digest: digest.to_string(),
            reads_catalogs,
        }
    }
}

/// A question and the digest of the answer that a compile received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AskedQuestion {
    pub question: CodeQuestion,
    pub digest: String,
}

/// A new answer, and whether earlier answers still hold.
#[derive(Debug)]
pub struct LookupResult {
    /// The state of the index.
    pub version: u64,
    /// An earlier answer is different in this state.
    pub is_outdated: bool,
    pub answer: CodeAnswer,
}

/// A question of the code of one node.
#[derive(Clone, Debug)]
pub struct CodeLookup {
    pub reader: NodeName,
    /// The state of the index that answered the earlier questions.
    pub version: Option<u64>,
    pub earlier: Vec<AskedQuestion>,
    pub question: CodeQuestion,
}

/// Answers the questions of code.
#[async_trait]
pub trait AnswerCode: Send + Sync + 'static {
    /// Answers a question for a node. If the index has changed since the lookup's
    /// version, checks that earlier answers are still the same.
    async fn answer(&self, lookup: CodeLookup) -> Result<LookupResult, ServiceError>;

    /// Returns the digests of the current answer, or nothing if it cannot have
    /// changed since the state that `since` names. Also returns the name of the
    /// current state.
    async fn digests(
        &self,
        question: CodeQuestion,
        since: Option<u64>,
    ) -> Result<(u64, Option<AnswerDigests>), ServiceError>;

    /// Reports changes of the index.
    fn changes(&self) -> watch::Receiver<u64>;
}
