//! Applies states or a catalog to this machine, in this process.
//!
//! `bunraku apply` and once tasks that are states both use it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_agent::facts::FactOptions;
use bunraku_engine::{
    ApplyLock, ApplyOptions, Cancellation, CatalogPlan, CommandSetting, LocalSources, LockOwner,
    RunNeeds, Summary, apply_plan,
};
use bunraku_model::{Catalog, OrderingMode};
use clap::{Args, FromArgMatches};
use serde_json::Map;

use crate::apply_view::{self, Printer, View};
use crate::exit::Exit;
use crate::fleet::Fleet;
use crate::machine_modules::{MachineModules, ModuleArgs, ModulesError};
use crate::ordering::ordering_mode;
use crate::state_dir::StateDirArgs;
use crate::state_tree::{self, StateArgs};
use crate::template_answers::MachineAnswers;

/// Apply states or a catalog to this machine.
///
/// PATH is a state file, a directory with a top file, or a catalog in JSON, such
/// as `puppet catalog compile` writes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bunraku apply examples/states --noop\n  bunraku apply catalog.json --detailed-exitcodes\n  bunraku apply --ssh root@web-1.example.com --state-root /srv/salt web.nginx"
)]
pub(crate) struct ApplyArgs {
    /// State file, directory or catalog.
    pub(crate) path: PathBuf,
    /// Apply to another machine over SSH, without installing an agent.
    #[arg(long, value_name = "[USER@]HOST")]
    pub(crate) ssh: Option<String>,
    #[command(flatten)]
    pub(crate) connection: crate::ssh::SshArgs,
    /// With `--ssh`: the Bunraku binary to copy, instead of this one.
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) binary: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) states: StateArgs,
    /// Only show what would change.
    #[arg(long)]
    pub(crate) noop: bool,
    /// Ordering mode [default: the catalog's own; otherwise `ansible` (file order) for states, `genius` (inferred order) for others].
    #[arg(long, value_name = "MODE", value_parser = ordering_mode())]
    pub(crate) order: Option<OrderingMode>,
    /// Apply only resources with one of these tags: type, title, class or a custom tag.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,
    /// Show the order and the reasons for it, and apply nothing.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Exit with 2 if something changed or would change.
    #[arg(long)]
    pub(crate) detailed_exitcodes: bool,
    /// Stop at the first failure.
    #[arg(long)]
    pub(crate) failhard: bool,
    /// Maximum number of resources to apply in parallel.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) parallel: Option<u16>,
    /// Seconds to wait for another apply to finish, instead of failing.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) lock_wait: u64,
    /// Show diffs of files (the default).
    #[arg(long, overrides_with = "no_diff")]
    pub(crate) show_diff: bool,
    /// Do not show diffs of files.
    #[arg(long)]
    pub(crate) no_diff: bool,
    /// Root directory of the managed machine.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateDirArgs,
    #[command(flatten)]
    pub(crate) modules: ModuleArgs,
    /// Directory for addresses of a scheme, such as `salt=/srv/salt`; repeatable.
    #[arg(long, value_name = "SCHEME=DIRECTORY")]
    pub(crate) source_root: Vec<String>,
}

impl ApplyArgs {
    /// Returns the options of `bunraku apply PATH`.
    pub(crate) fn of_path(path: &str) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("apply"));
        let words = ["apply", "--", path];
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}

/// The reason why there was no run.
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
    #[error("nothing was changed: invalid tag")]
    Tag(#[source] bunraku_engine::InvalidTag),
    #[error("nothing was changed")]
    Lock(#[source] bunraku_engine::LockError),
    #[error(
        "`--source-root {0}` is not of the form SCHEME=DIRECTORY, such as `puppet=/etc/puppet/code`"
    )]
    SourceRoot(String),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("the run was not recorded")]
    Record(#[source] bunraku_engine::ApplyError),
    #[error("cannot write the result")]
    Output(#[source] io::Error),
}

impl ApplyError {
    fn exit(&self) -> Exit {
        match self {
            Self::Modules(_) => Exit::Refused,
            _ => Exit::Error,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Lock(bunraku_engine::LockError::Held(_)) => {
                Some("pass `--lock-wait SECONDS` to wait for the other run".to_owned())
            }
            Self::Plan(bunraku_engine::PlanError::Cycle(_)) => Some(
                "remove one of these edges: each resource above waits for the one before it"
                    .to_owned(),
            ),
            Self::Plan(error) if !error.unknown_types().is_empty() => Some(
                "docs/resources.md lists the types. For others, install a module that implements them \
                 (`bunraku module`), let Puppet apply the catalog (`run_method = \"puppet\"` and \
                 `released = true` on the node), or remove the resources"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// The surroundings of one apply.
pub(crate) struct LocalApply {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) json: bool,
    pub(crate) printer: Printer,
    pub(crate) cancellation: Cancellation,
    /// Signals cancel the apply once the plan is complete. Until then, they end the process.
    pub(crate) listen_for_signals: bool,
    /// For commands of states and of templates.
    pub(crate) commands: CommandSetting,
}

impl LocalApply {
    /// Applies PATH and prints the result, or the reason why there was no run.
    pub(crate) fn run(self, arguments: &ApplyArgs) -> Exit {
        let printer = self.printer.clone();
        self.apply(arguments).unwrap_or_else(|error| {
            let hint = error.hint();
            printer.error(&error, hint.as_deref(), error.exit());
            error.exit()
        })
    }

    fn apply(self, arguments: &ApplyArgs) -> Result<Exit, ApplyError> {
        let (json, printer) = (self.json, &self.printer);
        let state_dir = &arguments.state.state_dir;
        let mut sources = sources(arguments)?;
        let remember = !arguments.noop && !arguments.explain;
        let modules = MachineModules::new(&arguments.modules, state_dir, remember);
        let answers = Arc::new(MachineAnswers {
            fleet: Arc::clone(&self.fleet),
            commands: self.commands.clone(),
        });
        let loaded = state_tree::load(&arguments.path, &arguments.states, &modules, answers)?;
        let catalog = match loaded {
            Some(loaded) => {
                let salt = sources.roots.entry("salt".to_owned()).or_default();
                salt.push(loaded.root);
                for note in &loaded.compiled.notes {
                    printer.error_line(&format!("note: {note}"));
                }
                loaded.compiled.catalog
            }
            None => read(&arguments.path)?,
        };
        let needs = RunNeeds::of(&catalog, arguments.order);
        let registry = modules.for_catalog(&catalog).map_err(ApplyError::Modules)?;
        let plan = CatalogPlan::new(&catalog, &registry, needs.plan_options());
        let plan = plan.map_err(ApplyError::Plan)?;
        let plan = (plan.only_tagged(&catalog, &arguments.tags)).map_err(ApplyError::Tag)?;
        if plan.is_empty() && !arguments.tags.is_empty() {
            let tags = arguments.tags.join(" or ");
            printer.error_line(&format!("note: no resource is tagged {tags}"));
        }
        // The plan has what it needs: when it is gone, so are the modules' processes.
        drop((registry, modules));
        if arguments.explain {
            apply_view::explain(&plan, json).map_err(ApplyError::Output)?;
            return Ok(Exit::Done);
        }
        let name = catalog.name.clone();
        drop(catalog);
        let facts = if needs.facts {
            let collected = bunraku_agent::facts::collect(&FactOptions::default());
            collected.facts.into_map()
        } else {
            Map::new()
        };
        if self.listen_for_signals {
            listen_for_signals(self.cancellation.clone()).map_err(ApplyError::Signals)?;
        }
        // A noop run changes nothing, so it does not have to wait for other runs.
        let _lock = if arguments.noop {
            None
        } else {
            Some(lock(arguments)?)
        };
        let view = View::new(json, !arguments.no_diff, printer.clone());
        let how = ApplyOptions {
            noop: arguments.noop,
            parallel: arguments.parallel.map(usize::from),
            failhard: arguments.failhard,
            root: arguments.root.clone(),
            sources: Arc::new(sources),
            facts: Arc::new(facts),
            commands: self.commands,
            coordinator: self.fleet,
            ..ApplyOptions::new(state_dir, self.cancellation, &view)
        };
        let result = apply_plan(&plan, how);
        view.end();
        let summary = result.map_err(ApplyError::Record)?;
        let shown = apply_view::SummarySubject {
            name: &name,
            path: &arguments.path,
            mode: needs.ordering,
            detailed: arguments.detailed_exitcodes,
        };
        apply_view::summary(&summary, &shown, json, printer).map_err(ApplyError::Output)?;
        let exit = exit_of(&summary, arguments.detailed_exitcodes);
        // The process ends soon: giving back every piece of memory one by one
        // would only take time. Processes of modules are another matter.
        if plan.has_modules() {
            drop(plan);
        } else {
            std::mem::forget(plan);
        }
        std::mem::forget(summary);
        Ok(exit)
    }
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
    ApplyLock::take(&arguments.state.state_dir, &owner, wait).map_err(ApplyError::Lock)
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

fn exit_of(summary: &Summary, detailed: bool) -> Exit {
    if !summary.succeeded() {
        Exit::Error
    } else if detailed && summary.changed() {
        Exit::Changes
    } else {
        Exit::Done
    }
}
