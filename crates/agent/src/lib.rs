//! The daemon on a node. It joins, keeps one stream open for commands, submits facts, applies runs,
//! reports, and answers.
//!
//! It runs as root on other people's machines. So it contains no store and no compiler, it accepts
//! commands only from servers of its own authority, and all possible commands are variants of one
//! enum.

mod catalogs;
mod commands;
mod connection;
mod coordination;
pub mod facts;
mod join;
mod journal;
mod plugins;
pub mod rehearsal;
mod renewal;
mod reports;
mod run_schedule;
mod runs;
mod schedule;
mod servers;
mod trust;
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
pub use plugins::{ModuleFacts, PluginError, PluginOptions};
pub use reports::{DeliveryError, Recorder, ReportsTo, SpoolError, SpoolOptions};
pub use runs::{
    CommandMethod, CommandOptions, EngineOptions, Methods, PreparedRun, PuppetForm, PuppetMethod,
    PuppetOptions, QueueError, RunDescription, RunEnd, RunMethod, RunOrder, RunSettings,
    RunStartError,
};
pub use windows::{InvalidWindow, Window, Windows};

/// Collects this machine's facts, with those of Puppet modules. Blocks.
pub type CollectFacts = Arc<dyn Fn(&ModuleFacts) -> FactSet + Send + Sync>;

/// The options of an agent.
#[derive(Clone)]
pub struct AgentOptions {
    pub name: NodeName,
    /// The servers, tried in order; never empty.
    pub servers: Vec<ServerAddress>,
    /// The directory for the certificate, the key, and the journal of answers.
    pub data_dir: PathBuf,
    /// The fingerprint of the authority to trust at the first contact.
    pub ca_fingerprint: Option<Fingerprint>,
    /// The token that admits the node immediately.
    pub token: Option<String>,
    pub facts_interval: Duration,
    pub collect_facts: CollectFacts,
    pub plugins: PluginOptions,
    pub runs: RunOptions,
}

/// The method for the runs that this node's settings define.
#[derive(Clone, Debug)]
pub enum ConfiguredMethod {
    /// This agent applies the released catalog.
    Engine,
    Command(CommandOptions),
    /// The node's installed Puppet.
    Puppet(Box<PuppetOptions>),
}

impl ConfiguredMethod {
    /// Returns the name that servers and reports use.
    fn name(&self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Command(_) => "command",
            Self::Puppet(_) => "puppet",
        }
    }

    /// Returns whether runs apply released catalogs. Without a release, there is then nothing to
    /// do.
    fn is_of_releases(&self) -> bool {
        match self {
            Self::Engine => true,
            Self::Command(_) => false,
            Self::Puppet(puppet) => puppet.released,
        }
    }

    /// Returns whether Puppet applies released catalogs.
    fn is_puppet_with_releases(&self) -> bool {
        matches!(self, Self::Puppet(puppet) if puppet.released)
    }
}

/// The options for runs on this node.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub method: ConfiguredMethod,
    pub settings: RunSettings,
    /// The time between two runs that the node starts automatically. `None`: never.
    pub interval: Option<Duration>,
    /// The first of these runs starts within this time after the agent's start.
    pub splay: Duration,
    /// The node applies a new release when it learns of it.
    pub on_release: bool,
    /// The node applies a new release within this time, each node at its own moment.
    pub release_splay: Duration,
    pub engine: EngineOptions,
    pub spool: SpoolOptions,
}

/// The reason why an agent cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node could not join")]
    Join(#[from] JoinError),
    #[error("cannot use the journal of answers")]
    Journal(#[from] JournalError),
    #[error("cannot use the run queue")]
    Queue(#[from] QueueError),
    #[error("cannot spool reports")]
    Spool(#[from] SpoolError),
    #[error("cannot store catalogs")]
    Catalogs(#[from] CatalogError),
    #[error("plugins cannot be kept")]
    Plugins(#[from] PluginError),
}

impl AgentError {
    /// Returns what the server suggests to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Join(JoinError::Refused(error)) => error.hint(),
            _ => None,
        }
    }
}

/// The state that the agent's parts share.
#[derive(Clone)]
struct Shared {
    options: AgentOptions,
    credentials: Credentials,
    client: Client,
    tls: bunraku_wire::ReloadableClientTls,
    /// Notified when the certificate was renewed: the stream is then reopened with the new one.
    renewed: Arc<tokio::sync::Notify>,
    /// Notified when the trusted CAs or the revocation list may have changed.
    trust_news: Arc<tokio::sync::Notify>,
    submissions: Arc<schedule::Submissions>,
    /// Tells whether the stream is open.
    connected: tokio::sync::watch::Sender<bool>,
    runs: runs::Runs,
    catalogs: catalogs::Catalogs,
    plugins: plugins::Plugins,
}

/// Joins if necessary, and does nothing else. Returns false if it was cancelled before the node was
/// admitted.
pub async fn join(
    options: &AgentOptions,
    shutdown: &CancellationToken,
) -> Result<bool, AgentError> {
    let credentials = Credentials::new(options.data_dir.join("tls"));
    let tls = join::ensure_identity(options, &credentials, shutdown).await?;
    Ok(tls.is_some())
}

/// Runs until cancelled: joins if necessary, then serves.
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
        CatalogOptions {
            plugins: options.runs.method.is_puppet_with_releases(),
            ..options.runs.engine.catalogs.clone()
        },
    )?;
    let plugins = options.plugins.clone();
    let plugins = plugins::Plugins::open(&options.data_dir, catalogs.clone(), plugins)?;
    let runs = runs::Runs::new(
        runs::QueueFile::open(&options.data_dir)?,
        Arc::clone(&spool),
        methods(&options, &catalogs, &plugins),
        options.runs.settings.clone(),
    );
    let shared = Shared {
        options,
        credentials,
        client,
        tls,
        renewed: Arc::default(),
        trust_news: Arc::default(),
        submissions: Arc::default(),
        connected: tokio::sync::watch::Sender::new(false),
        runs,
        catalogs,
        plugins,
    };
    tracing::info!(node = %shared.options.name, "the agent is up");
    let to = reports::ReportDelivery {
        node: shared.options.name.clone(),
        client: shared.client.clone(),
    };
    let connected = shared.connected.subscribe();
    tokio::join!(
        shared.runs.work(&shutdown),
        runs::report_activity(&shared, &shutdown),
        reports::deliver(&to, connected, &spool, &shutdown),
        run_schedule::ask_for_runs(&shared, &shutdown),
        connection::hold_stream(&shared, journal, &shutdown),
        schedule::submit_facts(&shared, &shutdown),
        renewal::keep_certificate(&shared, &shutdown),
        trust::keep_current(&shared, &shutdown),
    );
    tracing::info!("the agent is down");
    Ok(())
}

fn methods(
    options: &AgentOptions,
    catalogs: &catalogs::Catalogs,
    plugins: &plugins::Plugins,
) -> Methods {
    let engine: Arc<dyn RunMethod> = Arc::new(runs::EngineMethod {
        catalogs: catalogs.clone(),
        collect_facts: Arc::clone(&options.collect_facts),
        plugins: plugins.clone(),
        options: options.runs.engine.clone(),
        node: options.name.clone(),
    });
    let configured: Arc<dyn RunMethod> = match &options.runs.method {
        ConfiguredMethod::Engine => Arc::clone(&engine),
        ConfiguredMethod::Command(command) => Arc::new(CommandMethod::new(command.clone())),
        ConfiguredMethod::Puppet(puppet) => {
            let released = puppet.released;
            let puppet = Arc::new(PuppetMethod::new(
                (**puppet).clone(),
                catalogs.clone(),
                plugins.clone(),
            ));
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
