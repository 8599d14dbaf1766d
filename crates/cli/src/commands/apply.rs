//! `bunraku apply`: carries out a catalog on this machine, without a server.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bunraku_engine::{
    ApplyLock, Cancellation, CarryOut, LocalSources, LockOwner, Mode, Plan, PlanOptions, Summary,
    carry_out,
};
use bunraku_model::Catalog;

use crate::apply_view::{self, View};
use crate::context::Context;
use crate::exit::Exit;
use crate::fleet::Fleet;
use crate::machine_modules::{MachineModules, ModuleArgs, ModulesError};
use crate::state_tree::{self, StateArgs};

/// Where the engine keeps its records when nobody says.
pub(super) const USUAL_STATE_DIR: &str = "/var/lib/bunraku/engine";

/// Apply states or a catalog to this machine.
///
/// PATH is a state file, a directory with a top file, or a catalog in JSON, such
/// as `puppet catalog compile` writes.
#[derive(clap::Args)]
pub(crate) struct ApplyArgs {
    /// State file, directory or catalog.
    pub(super) path: PathBuf,
    /// Apply to another machine over SSH, without installing an agent.
    #[arg(long, value_name = "[USER@]HOST")]
    pub(super) ssh: Option<String>,
    #[command(flatten)]
    pub(super) connection: crate::ssh::SshArgs,
    /// With `--ssh`: the Bunraku binary to copy, instead of this one.
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(super) binary: Option<PathBuf>,
    #[command(flatten)]
    pub(super) states: StateArgs,
    /// Only show what would change.
    #[arg(long)]
    pub(super) noop: bool,
    /// Ordering mode [default: `ansible` (file order) for states, `genius` (inferred order) for catalogs].
    #[arg(long, value_name = "MODE", value_parser = ["justdoit", "ansible", "genius"])]
    pub(super) order: Option<String>,
    /// Apply only resources with one of these tags: type, title, class or a custom tag.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub(super) tags: Vec<String>,
    /// Show the order and the reasons for it, and apply nothing.
    #[arg(long)]
    pub(super) explain: bool,
    /// Exit with 2 if something changed or would change.
    #[arg(long)]
    pub(super) detailed_exitcodes: bool,
    /// Stop at the first failure.
    #[arg(long)]
    pub(super) failhard: bool,
    /// Maximum number of resources to apply in parallel.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) parallel: Option<u16>,
    /// Seconds to wait for another apply to finish, instead of failing.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(super) lock_wait: u64,
    /// Show diffs of files (the default).
    #[arg(long, overrides_with = "no_diff")]
    pub(super) show_diff: bool,
    /// Do not show diffs of files.
    #[arg(long)]
    pub(super) no_diff: bool,
    /// Root directory of the managed machine.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) root: Option<PathBuf>,
    /// Directory for backups and the record of the last run.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = USUAL_STATE_DIR,
        env = "BUNRAKU_STATE_DIR"
    )]
    pub(super) state_dir: PathBuf,
    #[command(flatten)]
    pub(super) modules: ModuleArgs,
    /// Directory for addresses of a scheme, such as `salt=/srv/salt`; repeatable.
    #[arg(long, value_name = "SCHEME=DIRECTORY")]
    pub(super) source_root: Vec<String>,
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not a catalog")]
    Catalog {
        path: PathBuf,
        #[source]
        source: bunraku_model::catalog::CatalogReadError,
    },
    #[error(transparent)]
    States(#[from] state_tree::StateTreeError),
    #[error("nothing was changed: a module cannot be used")]
    Modules(#[source] Arc<ModulesError>),
    #[error("nothing was changed: the catalog has problems")]
    Plan(#[source] bunraku_engine::PlanError),
    #[error("nothing was changed: nothing can be chosen by tag")]
    Tag(#[source] bunraku_engine::InvalidTag),
    #[error("nothing was changed")]
    Lock(#[source] bunraku_engine::LockError),
    #[error("`{0}` is not of the form SCHEME=DIRECTORY")]
    SourceRoot(String),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("the run was not recorded")]
    Record(#[source] bunraku_engine::CarryOutError),
    #[error("cannot write the result")]
    Output(#[source] io::Error),
}

impl ApplyError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Modules(_) => Exit::Refused.into(),
            _ => Exit::Error.into(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Lock(bunraku_engine::LockError::Held(_)) => {
                Some("wait for the other one with `--lock-wait SECONDS`".to_owned())
            }
            Self::Plan(bunraku_engine::PlanError::Cycle(_)) => Some(
                "remove one of these edges: each resource above waits for the one before it"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &ApplyArgs, context: &Context) -> ExitCode {
    if let Some(destination) = &arguments.ssh {
        return super::apply_ssh::run(destination, arguments, context.global.json);
    }
    match apply(arguments, context) {
        Ok(code) => code,
        Err(error) => {
            apply_view::print_error(&error, error.hint().as_deref());
            error.exit_code()
        }
    }
}

fn apply(arguments: &ApplyArgs, context: &Context) -> Result<ExitCode, ApplyError> {
    let (json, fleet) = (context.global.json, Arc::new(Fleet::new(context)));
    let mut sources = sources(arguments)?;
    let remember = !arguments.noop && !arguments.explain;
    let modules = MachineModules::new(&arguments.modules, &arguments.state_dir, remember);
    let loaded = state_tree::load(&arguments.path, &arguments.states, &modules, &fleet)?;
    let (catalog, usual) = match loaded {
        Some(loaded) => {
            let salt = sources.roots.entry("salt".to_owned()).or_default();
            salt.push(loaded.root);
            apply_view::notes(&loaded.compiled.notes);
            (loaded.compiled.catalog, Mode::Ansible)
        }
        None => (read(&arguments.path)?, Mode::default()),
    };
    let mode = (Mode::ALL.into_iter())
        .find(|mode| arguments.order.as_deref() == Some(mode.as_str()))
        .unwrap_or(usual);
    let options = PlanOptions {
        mode,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let registry = modules.for_catalog(&catalog).map_err(ApplyError::Modules)?;
    let plan = Plan::new(&catalog, &registry, options).map_err(ApplyError::Plan)?;
    let plan = (plan.only_tagged(&catalog, &arguments.tags)).map_err(ApplyError::Tag)?;
    if plan.is_empty() && !arguments.tags.is_empty() {
        apply_view::note(&format!(
            "no resource is tagged {}",
            arguments.tags.join(" or ")
        ));
    }
    // The plan has what it needs: when it is gone, so are the modules' processes.
    drop((registry, modules));
    if arguments.explain {
        apply_view::explain(&plan, json).map_err(ApplyError::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = catalog.name.clone();
    let facts = facts_for_templates(&catalog);
    drop(catalog);
    let cancellation = Cancellation::new().map_err(ApplyError::Signals)?;
    listen_for_signals(cancellation.clone()).map_err(ApplyError::Signals)?;
    // A noop run changes nothing, so it need not wait for anybody.
    let _lock = if arguments.noop {
        None
    } else {
        Some(lock(arguments)?)
    };
    let view = View::new(json, !arguments.no_diff, io::stderr().is_terminal());
    let how = CarryOut {
        noop: arguments.noop,
        parallel: arguments.parallel.map(usize::from),
        failhard: arguments.failhard,
        root: arguments.root.clone(),
        sources: Arc::new(sources),
        facts: Arc::new(facts),
        coordinator: fleet,
        ..CarryOut::new(&arguments.state_dir, cancellation, &view)
    };
    let result = carry_out(&plan, how);
    view.end();
    let summary = result.map_err(ApplyError::Record)?;
    let told = apply_view::Told {
        name: &name,
        path: &arguments.path,
        mode,
        detailed: arguments.detailed_exitcodes,
    };
    apply_view::summary(&summary, &told, json).map_err(ApplyError::Output)?;
    let code = exit_code(&summary, arguments.detailed_exitcodes);
    // The process ends here: giving back every piece of memory one by one
    // would only take time. Processes of modules are another matter.
    if plan.has_modules() {
        drop(plan);
    } else {
        std::mem::forget(plan);
    }
    std::mem::forget(summary);
    Ok(code)
}

/// This machine's facts, where a template may ask for them.
fn facts_for_templates(catalog: &Catalog) -> serde_json::Map<String, serde_json::Value> {
    let templates =
        |resource: &bunraku_model::catalog::Resource| resource.parameters.contains_key("template");
    if !catalog.resources.iter().any(templates) {
        return serde_json::Map::new();
    }
    let options = bunraku_agent::facts::FactOptions::default();
    bunraku_agent::facts::collect(&options).facts.into_map()
}

fn read(path: &Path) -> Result<Catalog, ApplyError> {
    let bytes = std::fs::read(path).map_err(|source| ApplyError::Read {
        path: path.to_owned(),
        source,
    })?;
    Catalog::from_json(&bytes).map_err(|source| ApplyError::Catalog {
        path: path.to_owned(),
        source,
    })
}

fn sources(arguments: &ApplyArgs) -> Result<LocalSources, ApplyError> {
    let mut roots: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for text in &arguments.source_root {
        let (scheme, directory) = text
            .split_once('=')
            .ok_or_else(|| ApplyError::SourceRoot(text.clone()))?;
        roots
            .entry(scheme.to_owned())
            .or_default()
            .push(directory.into());
    }
    Ok(LocalSources { roots })
}

fn lock(arguments: &ApplyArgs) -> Result<ApplyLock, ApplyError> {
    let owner = LockOwner {
        pid: std::process::id(),
        user: std::env::var("SUDO_USER")
            .or_else(|_| std::env::var("USER"))
            .unwrap_or_else(|_| "unknown".to_owned()),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        since: jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
    };
    let wait = Duration::from_secs(arguments.lock_wait);
    ApplyLock::take(&arguments.state_dir, &owner, wait).map_err(ApplyError::Lock)
}

/// Ctrl-C and SIGTERM end the step in hand and start no other.
fn listen_for_signals(cancellation: Cancellation) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            cancellation.cancel();
        })?;
    Ok(())
}

fn exit_code(summary: &Summary, detailed: bool) -> ExitCode {
    if !summary.succeeded() {
        ExitCode::FAILURE
    } else if detailed && summary.changed() {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    }
}
