//! `bunraku states`: inspects state files without applying them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bunraku_engine::CommandSetting;
use bunraku_states::{CompiledStates, LowState};
use serde_json::{Value, json};

use crate::apply_view;
use crate::context::Context;
use crate::fleet::Fleet;
use crate::machine_modules::{MachineModules, ModuleArgs};
use crate::output;
use crate::state_dir::StateDirArgs;
use crate::state_tree::{self, StateArgs, StateTreeError};
use crate::template_answers::MachineAnswers;

/// Inspect state files without applying them.
#[derive(clap::Args)]
pub(crate) struct StatesArgs {
    #[command(subcommand)]
    command: StatesCommand,
}

#[derive(clap::Subcommand)]
enum StatesCommand {
    /// Show all states in order of execution, with their requisites (Salt's `state.show_lowstate`).
    #[command(
        after_help = "Examples:\n  bunraku states show examples/states\n  bunraku states show web.nginx --state-root /srv/salt --what pillar"
    )]
    Show(ShowArgs),
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Directory with a top file, state file, or name below `--state-root`.
    path: PathBuf,
    #[command(flatten)]
    states: StateArgs,
    #[command(flatten)]
    modules: ModuleArgs,
    #[command(flatten)]
    state: StateDirArgs,
    /// What to show.
    #[arg(long, value_name = "WHAT", default_value = "low", value_parser = ["low", "pillar", "grains", "catalog"])]
    what: String,
}

/// The reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    #[error(transparent)]
    Tree(#[from] StateTreeError),
    #[error("{0} is neither a state file nor a directory")]
    NoStates(PathBuf),
    #[error("cannot write the result: {0}")]
    Output(String),
}

/// Runs the command.
pub(crate) fn run(arguments: &StatesArgs, context: &Context) -> ExitCode {
    let StatesCommand::Show(show) = &arguments.command;
    match show_states(show, context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            apply_view::print_error(&error, None);
            ExitCode::FAILURE
        }
    }
}

fn show_states(arguments: &ShowArgs, context: &Context) -> Result<(), ShowError> {
    let json = context.global.json;
    let answers = Arc::new(MachineAnswers {
        fleet: Arc::new(Fleet::new(context)),
        commands: CommandSetting::default(),
    });
    let modules = MachineModules::new(&arguments.modules, &arguments.state.state_dir, false);
    let loaded = state_tree::load(&arguments.path, &arguments.states, &modules, answers)?;
    let compiled = loaded
        .ok_or_else(|| ShowError::NoStates(arguments.path.clone()))?
        .compiled;
    for note in &compiled.notes {
        note!("note: {note}");
    }
    match arguments.what.as_str() {
        "pillar" => output::json(&compiled.pillar),
        "grains" => output::json(&compiled.grains),
        "catalog" => output::json(&compiled.catalog),
        _ if json => output::json(&low_json(&compiled)),
        _ => output::write(&low_text(&compiled)),
    }
    .map_err(|failure| ShowError::Output(failure.message().to_owned()))
}

fn low_json(compiled: &CompiledStates) -> Value {
    let one = |low: &LowState| {
        json!({
            "id": low.id, "name": low.name, "function": low.function, "sls": low.sls,
            "file": low.at.file, "line": low.at.line, "column": low.at.column,
            "position": low.position, "arguments": low.arguments,
            "requisites": low.requisites.iter().map(|(word, targets)| json!({
                "requisite": word,
                "targets": targets.iter().map(|at| compiled.low[*at].id.as_str()).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    };
    compiled.low.iter().map(one).collect()
}

fn low_text(compiled: &CompiledStates) -> String {
    let mut text = String::new();
    for low in &compiled.low {
        let (number, function, id) = (low.position + 1, &low.function, &low.id);
        text.push_str(&format!("{number:>4}  {function}  {id}"));
        if low.name != low.id {
            text.push_str(&format!("  ({})", low.name.trim_end()));
        }
        text.push_str(&format!("  {}\n", low.at));
        for (word, targets) in &low.requisites {
            let names: Vec<String> = targets
                .iter()
                .map(|at| format!("{} {}", at + 1, compiled.low[*at].id))
                .collect();
            text.push_str(&format!("        {word}: {}\n", names.join(", ")));
        }
    }
    text
}
