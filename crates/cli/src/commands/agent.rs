//! `bunraku agent`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_agent::{
    AgentOptions, CatalogOptions, CommandOptions, ConfiguredMethod, EngineOptions, ModuleFacts,
    PluginOptions, RunOptions, RunSettings, SpoolOptions, Window, Windows,
};
use bunraku_model::{NodeName, OrderingMode};
use bunraku_wire::Fingerprint;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::facts;
use crate::config::{AgentSection, RunMethodKind};
use crate::connection::servers;
use crate::context::Context;
use crate::cues::OtherTransports;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::ordering::ordering_mode;
use crate::signals::{end_with_parent, termination_signal};

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku agent --server bunraku.example.com:8150 --ca-fingerprint SHA256:… --token-file ./token
  bunraku agent --server bunraku.example.com:8150 --ca-fingerprint SHA256:…   # then `bunraku cert sign NODE --fingerprint …`

After joining, `bunraku agent` only needs the server. Pass the token in a file or in the
environment (BUNRAKU_TOKEN), so that it does not appear in process lists.")]
pub(crate) struct AgentArguments {
    /// Name of this node [default: the fully qualified host name]
    #[arg(long, env = "BUNRAKU_NODE_NAME")]
    name: Option<String>,

    /// Directory for the node's certificate, key and journal
    #[arg(long, env = "BUNRAKU_AGENT_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Fingerprint of the CA to trust on first contact, as printed by `bunraku token create`
    #[arg(long, env = "BUNRAKU_CA_FINGERPRINT", value_name = "SHA256:…")]
    ca_fingerprint: Option<String>,

    /// File with a one-time join token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// How often to submit facts
    #[arg(long, value_name = "SPAN")]
    facts_interval: Option<HumanDuration>,

    /// Directory with external facts, instead of the default directories; repeatable
    #[arg(long, value_name = "DIR")]
    external_facts: Vec<PathBuf>,

    /// Join and exit; the next start needs no token
    #[arg(long)]
    join_only: bool,

    #[command(flatten)]
    runs: RunArguments,

    /// Exit when the parent process with this id exits
    #[arg(long, hide = true, value_name = "PID")]
    end_with_parent: Option<i32>,
}

/// Options for runs.
#[derive(Args)]
struct RunArguments {
    /// What a run does
    #[arg(long, value_enum)]
    run_method: Option<RunMethodKind>,

    /// Shell command for `--run-method command`
    #[arg(long, value_name = "COMMAND")]
    run_command: Option<String>,

    /// Interval between scheduled runs; `0s` for none
    #[arg(long, value_name = "SPAN")]
    run_interval: Option<HumanDuration>,

    /// Start the first run within this time
    #[arg(long, value_name = "SPAN")]
    run_splay: Option<HumanDuration>,

    /// Run when a new release reaches this node
    #[arg(long)]
    run_on_release: bool,
    /// Spread the runs of a new release over this time
    #[arg(long, value_name = "SPAN")]
    release_splay: Option<HumanDuration>,

    /// Run in noop mode unless a request asks to enforce
    #[arg(long)]
    noop: bool,

    /// Window in which runs enforce, such as `mon-fri 22:00-04:00 Europe/Berlin`; repeatable
    #[arg(long = "window", value_name = "WINDOW")]
    windows: Vec<Window>,

    /// Ordering mode of every run, instead of the environment's
    #[arg(long, value_name = "MODE", value_parser = ordering_mode())]
    order: Option<OrderingMode>,

    /// Directory for backups and the record of the last run
    #[arg(long, value_name = "DIR", env = "BUNRAKU_STATE_DIR")]
    state_dir: Option<PathBuf>,

    /// Directory with trusted module keys (`*.pub`) and the list of revoked keys (`revoked`)
    #[arg(long, value_name = "DIR", env = "BUNRAKU_MODULE_KEYS")]
    module_keys: Option<PathBuf>,

    /// Root directory of the managed machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(crate) fn run(arguments: AgentArguments, context: &Context) -> Result<Exit, Failure> {
    end_with_parent(arguments.end_with_parent)?;
    let join_only = arguments.join_only;
    let options = agent_options(arguments, context)?;
    // One thread is enough: an agent is idle nearly all the time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        tokio::spawn(async move {
            if let Ok(signal) = termination_signal().await {
                tracing::info!(signal, "shutting down");
            }
            stop.cancel();
        });
        if join_only {
            let joined = bunraku_agent::join(&options, &shutdown).await;
            return if joined.map_err(with_hint)? {
                Ok(Exit::Done)
            } else {
                Err(Failure::new("stopped before the node had joined"))
            };
        }
        let ran = bunraku_agent::run(options, shutdown).await;
        ran.map_err(with_hint)?;
        Ok(Exit::Done)
    })
}

fn with_hint(error: bunraku_agent::AgentError) -> Failure {
    let hint = error.hint();
    Failure::from(error).hint_if(hint)
}

fn agent_options(arguments: AgentArguments, context: &Context) -> Result<AgentOptions, Failure> {
    let section = &context.loaded.file.agent;
    let name = match arguments.name.or_else(|| section.name.clone()) {
        Some(name) => name,
        None => host_name()?,
    };
    let fingerprint = arguments
        .ca_fingerprint
        .or_else(|| section.ca_fingerprint.clone());
    let token_file = arguments.token_file.or_else(|| section.token_file.clone());
    let mut fact_options = facts::options(context);
    if !arguments.external_facts.is_empty() {
        fact_options.external_dirs = arguments.external_facts;
    }
    let data_dir = (arguments.data_dir).unwrap_or_else(|| section.data_dir.clone());
    let data_dir = std::path::absolute(data_dir)?;
    Ok(AgentOptions {
        name: NodeName::new(name)?,
        servers: servers(&context.global.servers, &section.servers)?,
        data_dir: data_dir.clone(),
        ca_fingerprint: fingerprint
            .map(|text| text.parse::<Fingerprint>())
            .transpose()?,
        token: token(token_file)?,
        facts_interval: arguments.facts_interval.unwrap_or(section.facts_interval).0,
        collect_facts: Arc::new(move |modules: &ModuleFacts| {
            let options = fact_options.with_modules(modules);
            let collected = bunraku_agent::facts::collect(&options);
            for warning in &collected.warnings {
                tracing::warn!("{warning}");
            }
            collected.facts
        }),
        plugins: PluginOptions {
            enabled: section.plugin_sync,
            puppet_arguments: section.puppet.identity_arguments(),
            ..PluginOptions::default()
        },
        runs: run_options(arguments.runs, section, &data_dir)?,
    })
}

fn run_options(
    arguments: RunArguments,
    section: &AgentSection,
    data_dir: &Path,
) -> Result<RunOptions, Failure> {
    let none_if_zero = |span: HumanDuration| Some(span.0).filter(|span| !span.is_zero());
    let configured: Result<Vec<Window>, _> =
        section.windows.iter().map(|text| text.parse()).collect();
    let windows = if arguments.windows.is_empty() {
        configured.map_err(|error| Failure::usage(error.to_string()))?
    } else {
        arguments.windows
    };
    Ok(RunOptions {
        method: method(
            arguments.run_method.unwrap_or(section.run_method),
            arguments.run_command,
            section,
            data_dir,
        )?,
        settings: RunSettings {
            noop: arguments.noop || section.noop,
            windows: Windows(windows),
            timeout: none_if_zero(section.run_timeout),
        },
        interval: none_if_zero(arguments.run_interval.unwrap_or(section.run_interval)),
        splay: arguments.run_splay.unwrap_or(section.run_splay).0,
        on_release: arguments.run_on_release || section.run_on_release,
        release_splay: (arguments.release_splay).unwrap_or(section.release_splay).0,
        engine: EngineOptions {
            state_directory: (arguments.state_dir).unwrap_or_else(|| section.state_dir.clone()),
            module_keys: (arguments.module_keys).unwrap_or_else(|| section.module_keys.clone()),
            root: arguments.root.or_else(|| section.root.clone()),
            order: arguments.order.or(section.order),
            lock_wait: section.lock_wait.0,
            transport: Some(Arc::new(OtherTransports)),
            catalogs: CatalogOptions {
                largest_catalog: section.catalog_bytes,
                ..CatalogOptions::default()
            },
        },
        spool: SpoolOptions {
            most_bytes: section.spool_bytes,
            report_unchanged: section.report_unchanged,
            ..SpoolOptions::default()
        },
    })
}

fn method(
    kind: RunMethodKind,
    named: Option<String>,
    section: &AgentSection,
    data_dir: &Path,
) -> Result<ConfiguredMethod, Failure> {
    match kind {
        RunMethodKind::Engine => return Ok(ConfiguredMethod::Engine),
        RunMethodKind::Puppet => {
            let options = section.puppet.options(data_dir)?;
            return Ok(ConfiguredMethod::Puppet(Box::new(options)));
        }
        RunMethodKind::Command => {}
    }
    let shell = |text: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), text];
    let command = named.map_or_else(|| section.run_command.clone(), shell);
    if command.is_empty() {
        return Err(
            Failure::usage("the run method is `command`, but no command is set")
                .hint("pass `--run-command COMMAND`, or set `run_command` under [agent]"),
        );
    }
    Ok(ConfiguredMethod::Command(CommandOptions {
        command,
        noop_command: section.run_noop_command.clone(),
        success_codes: section.run_success_codes.clone(),
    }))
}

/// Reads the token from a file or the environment. Everyone on the machine could read
/// a token on the command line.
fn token(file: Option<PathBuf>) -> Result<Option<String>, Failure> {
    match file {
        Some(path) => match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) => Err(
                Failure::new(format!("cannot read the token in {}", path.display()))
                    .caused_by(&error),
            ),
        },
        None => Ok(std::env::var("BUNRAKU_TOKEN").ok()),
    }
}

/// The fully qualified name of this machine, according to its facts.
pub(crate) fn host_name() -> Result<String, Failure> {
    let options = bunraku_agent::facts::FactOptions::default();
    let facts = bunraku_agent::facts::collect(&options).facts;
    let fact = |path: &str| facts.get(path).and_then(serde_json::Value::as_str);
    match fact("networking.fqdn").or_else(|| fact("networking.hostname")) {
        Some(name) => Ok(name.to_ascii_lowercase()),
        None => Err(Failure::usage("this machine has no host name").hint("set one with `--name`")),
    }
}
