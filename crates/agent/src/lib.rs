//! The daemon on a node: it joins, holds one stream for commands, submits
//! facts, carries out runs, reports, and answers.
//!
//! It runs as root on other people's machines. So it has no store and no
//! compiler in it, it takes commands only from servers of its own authority,
//! and everything that a server can ask is one variant of one enum.

mod catalogs;
mod commands;
mod connection;
mod coordination;
pub mod facts;
mod join;
mod journal;
pub mod rehearsal;
mod renewal;
mod reports;
mod run_schedule;
mod runs;
mod schedule;
mod servers;
mod windows;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{FactSet, NodeName};
use bunraku_wire::{Client, Credentials, Fingerprint, ServerAddress};
use tokio_util::sync::CancellationToken;

pub use catalogs::{CatalogError, CatalogOptions};
pub use coordination::{
    CueTransport, RunCues, ServerCoordinator, chain_text, firing_text, send_firing,
};
pub use join::JoinError;
pub use journal::JournalError;
pub use reports::{NotTaken, Recorder, ReportsTo, SpoolError, SpoolOptions};
pub use runs::{
    CommandMethod, CommandOptions, EngineOptions, Methods, NotStarted, PreparedRun, PuppetForm,
    PuppetMethod, PuppetOptions, QueueError, RunDescription, RunEnd, RunMethod, RunOrder,
    RunSettings,
};
pub use windows::{InvalidWindow, Window, Windows};

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
    pub runs: RunOptions,
}

/// What carries out runs of what this node's settings name.
#[derive(Clone, Debug)]
pub enum ConfiguredMethod {
    /// The released catalog, by this agent.
    Engine,
    Command(CommandOptions),
    /// The Puppet that is already there.
    Puppet(Box<PuppetOptions>),
}

impl ConfiguredMethod {
    /// Whether its runs are of released catalogs: without one, there is nothing to do.
    fn is_of_releases(&self) -> bool {
        match self {
            Self::Engine => true,
            Self::Command(_) => false,
            Self::Puppet(puppet) => puppet.released,
        }
    }
}

/// How runs are carried out on this node.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub method: ConfiguredMethod,
    pub settings: RunSettings,
    /// Between two runs that the node asks for by itself. `None`: never.
    pub interval: Option<Duration>,
    /// The first of them is within this after the agent's start.
    pub splay: Duration,
    /// A new release is carried out when the node hears of it.
    pub on_release: bool,
    /// Within this after it heard of it, each node at its own time.
    pub release_splay: Duration,
    pub engine: EngineOptions,
    pub spool: SpoolOptions,
}

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node could not join")]
    Join(#[from] JoinError),
    #[error("the journal of answers cannot be used")]
    Journal(#[from] JournalError),
    #[error("the run queue cannot be used")]
    Queue(#[from] QueueError),
    #[error("reports cannot be spooled")]
    Spool(#[from] SpoolError),
    #[error("catalogs cannot be kept")]
    Catalogs(#[from] CatalogError),
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
    submissions: Arc<schedule::Submissions>,
    /// Whether the stream is open.
    connected: tokio::sync::watch::Sender<bool>,
    runs: runs::Runs,
    catalogs: catalogs::Catalogs,
}

/// Only joins, if need be. False: cancelled before it was let in.
pub async fn join(
    options: &AgentOptions,
    shutdown: &CancellationToken,
) -> Result<bool, AgentError> {
    let credentials = Credentials::new(options.data_dir.join("tls"));
    let tls = join::ensure_identity(options, &credentials, shutdown).await?;
    Ok(tls.is_some())
}

/// Runs until cancelled: joins if need be, then serves.
pub async fn run(options: AgentOptions, shutdown: CancellationToken) -> Result<(), AgentError> {
    let credentials = Credentials::new(options.data_dir.join("tls"));
    let Some(tls) = join::ensure_identity(&options, &credentials, &shutdown).await? else {
        return Ok(());
    };
    let journal = journal::Journal::open(&options.data_dir)?;
    let client = connection::client(&options, &tls);
    let spool = reports::Spool::open(&options.data_dir.join("spool"), options.runs.spool.clone())?;
    let catalogs = catalogs::Catalogs::open(
        &options.data_dir,
        &options.name,
        client.clone(),
        options.runs.engine.catalogs.clone(),
    )?;
    let runs = runs::Runs::new(
        runs::QueueFile::open(&options.data_dir)?,
        Arc::clone(&spool),
        methods(&options, &catalogs),
        options.runs.settings.clone(),
    );
    let shared = Shared {
        options,
        credentials,
        client,
        tls,
        renewed: Arc::default(),
        submissions: Arc::default(),
        connected: tokio::sync::watch::Sender::new(false),
        runs,
        catalogs,
    };
    tracing::info!(node = %shared.options.name, "the agent is up");
    let to = reports::ToServers {
        node: shared.options.name.clone(),
        client: shared.client.clone(),
    };
    let connected = shared.connected.subscribe();
    tokio::join!(
        shared.runs.work(&shutdown),
        runs::tell_servers(&shared, &shutdown),
        reports::deliver(&to, connected, &spool, &shutdown),
        run_schedule::ask_for_runs(&shared, &shutdown),
        connection::hold_stream(&shared, journal, &shutdown),
        schedule::submit_facts(&shared, &shutdown),
        renewal::keep_certificate(&shared, &shutdown),
    );
    tracing::info!("the agent is down");
    Ok(())
}

fn methods(options: &AgentOptions, catalogs: &catalogs::Catalogs) -> Methods {
    let engine: Arc<dyn RunMethod> = Arc::new(runs::EngineMethod {
        catalogs: catalogs.clone(),
        collect_facts: Arc::clone(&options.collect_facts),
        options: options.runs.engine.clone(),
        node: options.name.clone(),
    });
    let configured: Arc<dyn RunMethod> = match &options.runs.method {
        ConfiguredMethod::Engine => Arc::clone(&engine),
        ConfiguredMethod::Command(command) => Arc::new(CommandMethod::new(command.clone())),
        ConfiguredMethod::Puppet(puppet) => {
            let released = puppet.released;
            let puppet = Arc::new(PuppetMethod::new((**puppet).clone(), catalogs.clone()));
            if released {
                return Methods {
                    engine: Arc::clone(&puppet) as Arc<dyn RunMethod>,
                    configured: puppet,
                };
            }
            puppet
        }
    };
    Methods { engine, configured }
}
