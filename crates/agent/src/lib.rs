//! The daemon on a node: it joins, holds one stream for commands, submits
//! facts, and answers.
//!
//! It runs as root on other people's machines. So it has no store and no
//! compiler in it, it takes commands only from servers of its own authority,
//! and everything that a server can ask is one variant of one enum.

mod commands;
mod connection;
pub mod facts;
mod join;
mod journal;
mod renewal;
mod schedule;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{FactSet, NodeName};
use bunraku_wire::{Client, Credentials, Fingerprint, ServerAddress};
use tokio_util::sync::CancellationToken;

pub use join::JoinError;
pub use journal::JournalError;

/// Collects this machine's facts. Blocking.
pub type CollectFacts = Arc<dyn Fn() -> FactSet + Send + Sync>;

/// How an agent behaves.
#[derive(Clone)]
pub struct AgentOptions {
    pub name: NodeName,
    /// Tried in order; never empty.
    pub servers: Vec<ServerAddress>,
    /// Certificate, key, and the journal of answers.
    pub data_dir: PathBuf,
    /// The authority to trust at the first contact.
    pub ca_fingerprint: Option<Fingerprint>,
    /// Lets the node in at once.
    pub token: Option<String>,
    pub facts_interval: Duration,
    pub collect_facts: CollectFacts,
}

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node could not join")]
    Join(#[from] JoinError),
    #[error("the journal of answers cannot be used")]
    Journal(#[from] JournalError),
}

/// What the agent's parts share.
#[derive(Clone)]
struct Shared {
    options: AgentOptions,
    credentials: Credentials,
    client: Client,
    tls: bunraku_wire::ReloadableClientTls,
    /// The certificate was renewed: the stream is opened again with the new one.
    renewed: Arc<tokio::sync::Notify>,
}

/// Runs until cancelled: joins if need be, then serves.
pub async fn run(options: AgentOptions, shutdown: CancellationToken) -> Result<(), AgentError> {
    let credentials = Credentials::new(options.data_dir.join("tls"));
    let Some(tls) = join::ensure_identity(&options, &credentials, &shutdown).await? else {
        return Ok(());
    };
    let journal = journal::Journal::open(&options.data_dir)?;
    let client = connection::client(&options, &tls);
    let shared = Shared {
        options,
        credentials,
        client,
        tls,
        renewed: Arc::default(),
    };
    tracing::info!(node = %shared.options.name, "the agent is up");
    tokio::join!(
        connection::hold_stream(&shared, journal, &shutdown),
        schedule::submit_facts(&shared, &shutdown),
        renewal::keep_certificate(&shared, &shutdown),
    );
    tracing::info!("the agent is down");
    Ok(())
}
