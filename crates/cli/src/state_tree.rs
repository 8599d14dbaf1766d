//! State files on this machine: finds the tree, its data and its node.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_compile::state_world::{
    AnswerTemplates, FindStateFunctions, StateDirectories, StateWorld,
};
use bunraku_states::{
    CompileError, CompiledStates, Input, Problem, Target, World, compile, read_data,
};
use serde_json::{Map, Value};

use crate::machine_modules::MachineModules;

/// Options for state files.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StateArgs {
    /// Root of the state tree; PATH is then the name of a state file (`web.nginx`), or several separated by commas.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_root: Option<PathBuf>,
    /// Pillar data: a directory with a top file, or a YAML or JSON file [default: the directory `pillar` next to the tree].
    #[arg(long, value_name = "PATH")]
    pub(crate) pillar: Vec<PathBuf>,
    /// Pillar data as a JSON object; overrides all files. `-` reads it from standard input; on the
    /// command line, every user of the machine can see it.
    #[arg(long, value_name = "JSON")]
    pub(crate) pillar_json: Option<String>,
    /// Node name for top files, instead of this machine's.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
}

/// The reason why there is nothing to apply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateTreeError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`--pillar-json` is not a JSON object")]
    PillarJson,
    #[error("nothing was changed: the pillar data is not usable")]
    Data(#[source] Box<Problem>),
    #[error("nothing was changed: the states cannot be compiled")]
    Compile(#[source] CompileError),
}

/// A compiled tree, and the directories of its `salt://` files.
pub(crate) struct LoadedTree {
    pub(crate) compiled: CompiledStates,
    pub(crate) root: PathBuf,
}

/// Compiles PATH if it names states: a directory with a top file, a state file, or a name below
/// `--state-root`. Returns nothing for a catalog.
pub(crate) fn load(
    path: &Path,
    arguments: &StateArgs,
    modules: &Arc<MachineModules>,
    answers: Arc<dyn AnswerTemplates>,
) -> Result<Option<LoadedTree>, StateTreeError> {
    let Some((root, target)) = find(path, arguments) else {
        return Ok(None);
    };
    let collected = bunraku_agent::facts::collect(&bunraku_agent::facts::FactOptions::default());
    let facts = collected.facts.into_map();
    let (directories, pillar) = data(&root, arguments)?;
    let world: Arc<dyn World> = Arc::new(StateWorld {
        directories: Arc::new(StateDirectories {
            states: vec![root.clone()],
            pillar: directories,
        }),
        functions: Arc::clone(modules) as Arc<dyn FindStateFunctions>,
        answers,
    });
    let node = arguments.node.clone().unwrap_or_else(|| node_name(&facts));
    let input = Input {
        node,
        facts,
        pillar,
        target,
        ..Input::default()
    };
    let compiled = compile(&world, &input).map_err(StateTreeError::Compile)?;
    Ok(Some(LoadedTree { compiled, root }))
}

/// Returns the root of the tree that PATH belongs to, and its default data directories. Returns
/// nothing for a catalog.
pub(crate) fn tree_of(path: &Path, arguments: &StateArgs) -> Option<(PathBuf, Option<PathBuf>)> {
    let (root, _) = find(path, arguments)?;
    let beside = if arguments.pillar.is_empty() {
        data_beside(&root)
    } else {
        None
    };
    Some((root, beside))
}

/// Returns the directory `pillar` beside a tree.
fn data_beside(root: &Path) -> Option<PathBuf> {
    let beside = root.canonicalize().ok()?.parent()?.join("pillar");
    beside.is_dir().then_some(beside)
}

fn find(path: &Path, arguments: &StateArgs) -> Option<(PathBuf, Target)> {
    if let Some(root) = &arguments.state_root {
        let text = path.to_string_lossy();
        let names = text.split(',').map(|name| sls_name(name.trim())).collect();
        return Some((root.clone(), Target::Files(names)));
    }
    if path.is_dir() {
        return Some((path.to_owned(), Target::Highstate));
    }
    if path.extension().is_some_and(|extension| extension == "sls") {
        let root = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let root = root.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let name = path.file_stem()?.to_string_lossy().into_owned();
        if name == "init" {
            // `web/init.sls` is `web` of the tree above it.
            let above = root.canonicalize().ok()?;
            let name = above.file_name()?.to_string_lossy().into_owned();
            return Some((above.parent()?.to_owned(), Target::Files(vec![name])));
        }
        return Some((root, Target::Files(vec![name])));
    }
    None
}

/// Returns the name of a state file: `web/nginx.sls` and `web/nginx` are `web.nginx`.
fn sls_name(text: &str) -> String {
    text.trim_end_matches(".sls")
        .trim_end_matches("/init")
        .replace('/', ".")
}

fn node_name(facts: &Map<String, Value>) -> String {
    let networking = facts.get("networking");
    let fact = |name: &str| {
        networking
            .and_then(|found| found.get(name))
            .and_then(Value::as_str)
    };
    fact("fqdn")
        .or_else(|| fact("hostname"))
        .unwrap_or("localhost")
        .to_owned()
}

/// Returns the data directories, and the data of single files and of the flag.
fn data(
    root: &Path,
    arguments: &StateArgs,
) -> Result<(Vec<PathBuf>, Map<String, Value>), StateTreeError> {
    let mut directories = Vec::new();
    let mut over = Map::new();
    for path in &arguments.pillar {
        if path.is_dir() {
            directories.push(path.clone());
            continue;
        }
        let text = std::fs::read_to_string(path).map_err(|source| StateTreeError::Read {
            path: path.clone(),
            source,
        })?;
        let found = read_data(&path.to_string_lossy(), &text)
            .map_err(|problem| StateTreeError::Data(Box::new(problem)))?;
        over.extend(found);
    }
    if arguments.pillar.is_empty() {
        directories.extend(data_beside(root));
    }
    if let Some(text) = &arguments.pillar_json {
        match serde_json::from_str(&pillar_text(text)?) {
            Ok(Value::Object(members)) => over.extend(members),
            _ => return Err(StateTreeError::PillarJson),
        }
    }
    Ok((directories, over))
}

/// Returns the JSON of `--pillar-json`, which `-` takes from standard input.
pub(crate) fn pillar_text(argument: &str) -> Result<String, StateTreeError> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    std::io::read_to_string(std::io::stdin()).map_err(|source| StateTreeError::Read {
        path: PathBuf::from("standard input"),
        source,
    })
}
