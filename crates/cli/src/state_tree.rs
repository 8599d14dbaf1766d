//! State files on this machine: finds the tree, its data and its node.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_engine::Registry;
use bunraku_process::{OutputLimits, Program};
use bunraku_states::{
    CompileError, Compiled, Function, Input, Lookup, Problem, Target, Tree, World, WorldError,
    compile, read_data,
};
use serde_json::{Map, Value, json};

use crate::fleet::Fleet;
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
    /// Pillar data as a JSON object; overrides all files.
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
    #[error("nothing was changed: the data cannot be used")]
    Data(#[source] Box<Problem>),
    #[error("nothing was changed: the states cannot be compiled")]
    Compile(#[source] CompileError),
}

/// A compiled tree, and the directories of its `salt://` files.
pub(crate) struct Loaded {
    pub(crate) compiled: Compiled,
    pub(crate) root: PathBuf,
}

/// Compiles PATH if it names states: a directory with a top file, a state file, or a name below
/// `--state-root`. Returns nothing for a catalog.
pub(crate) fn load(
    path: &Path,
    arguments: &StateArgs,
    modules: &Arc<MachineModules>,
    fleet: &Arc<Fleet>,
) -> Result<Option<Loaded>, StateTreeError> {
    let Some((root, target)) = find(path, arguments) else {
        return Ok(None);
    };
    let collected = bunraku_agent::facts::collect(&bunraku_agent::facts::FactOptions::default());
    let facts = collected.facts.into_map();
    let (directories, pillar) = data(&root, arguments)?;
    let world: Arc<dyn World> = Arc::new(Files {
        roots: HashMap::from([
            (Tree::States, vec![root.clone()]),
            (Tree::Pillar, directories),
        ]),
        modules: Arc::clone(modules),
        fleet: Arc::clone(fleet),
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
    Ok(Some(Loaded { compiled, root }))
}

/// Returns the root of the tree that PATH belongs to, and its default data directories. Returns
/// nothing for a catalog.
pub(crate) fn tree_of(path: &Path, arguments: &StateArgs) -> Option<(PathBuf, Option<PathBuf>)> {
    let (root, _) = find(path, arguments)?;
    let beside = match arguments.pillar.is_empty() {
        true => data_beside(&root),
        false => None,
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
        match serde_json::from_str(text) {
            Ok(Value::Object(members)) => over.extend(members),
            _ => return Err(StateTreeError::PillarJson),
        }
    }
    Ok((directories, over))
}

/// A tree on disk.
struct Files {
    roots: HashMap<Tree, Vec<PathBuf>>,
    modules: Arc<MachineModules>,
    fleet: Arc<Fleet>,
}

impl Files {
    fn roots(&self, tree: Tree) -> &[PathBuf] {
        self.roots.get(&tree).map_or(&[], Vec::as_slice)
    }
}

impl World for Files {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        // A name must not escape its tree.
        let climbs =
            |part: std::path::Component<'_>| !matches!(part, std::path::Component::Normal(_));
        if Path::new(path).components().any(climbs) {
            return Ok(None);
        }
        for root in self.roots(tree) {
            match std::fs::read_to_string(root.join(path)) {
                Ok(text) => return Ok(Some(text)),
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::NotFound
                            | std::io::ErrorKind::NotADirectory
                            | std::io::ErrorKind::IsADirectory
                    ) => {}
                Err(error) => return Err(WorldError::new(format!("cannot read {path}: {error}"))),
            }
        }
        Ok(None)
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        let mut found = Vec::new();
        for root in self.roots(tree) {
            let mut open = vec![root.clone()];
            while let Some(directory) = open.pop() {
                let entries = std::fs::read_dir(&directory).map_err(|error| {
                    WorldError::new(format!("cannot read {}: {error}", directory.display()))
                })?;
                for entry in entries.flatten() {
                    let path = entry.path();
                    let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                    if is_directory {
                        open.push(path);
                    } else if path.extension().is_some_and(|extension| extension == "sls")
                        && let Ok(below) = path.strip_prefix(root)
                    {
                        found.push(below.to_string_lossy().into_owned());
                    }
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn function(&self, name: &str) -> Lookup {
        let registry = self.modules.with_state_function(name);
        look_up(registry.unwrap_or_else(|| self.modules.registry()), name)
    }

    fn functions(&self) -> Vec<String> {
        names(self.modules.registry())
    }

    fn call(
        &self,
        function: &str,
        positional: &[Value],
        named: &Map<String, Value>,
    ) -> Result<Value, WorldError> {
        call(&self.fleet, function, positional, named)
    }
}

fn look_up(registry: &Registry, name: &str) -> Lookup {
    match registry.state_function(name) {
        Some((spec, function)) => Lookup::Known(described(spec, function)),
        None => {
            let module = name.split('.').next().unwrap_or(name);
            let known = names(registry)
                .iter()
                .any(|function| function.split('.').next() == Some(module));
            if known {
                Lookup::UnknownFunction
            } else {
                Lookup::UnknownModule
            }
        }
    }
}

fn names(registry: &Registry) -> Vec<String> {
    let all = registry.specs().flat_map(|spec| spec.states);
    all.map(|state| state.function.to_owned()).collect()
}

/// The engine's mapping of state functions, for a server that compiles.
pub(crate) struct EngineFunctions(Registry);

impl Default for EngineFunctions {
    fn default() -> Self {
        Self(Registry::standard())
    }
}

impl std::fmt::Debug for EngineFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineFunctions")
    }
}

impl bunraku_compile::compiles::StateFunctions for EngineFunctions {
    fn function(&self, name: &str) -> Lookup {
        look_up(&self.0, name)
    }

    fn functions(&self) -> Vec<String> {
        names(&self.0)
    }

    fn with_modules(
        &self,
        modules: &[bunraku_module::Verified],
    ) -> Result<Arc<dyn bunraku_compile::compiles::StateFunctions>, String> {
        let mut registry = Registry::standard();
        for module in modules {
            // The module is never unpacked or run here. Only its declarations matter.
            let added = registry.add_module(module, Path::new("/nonexistent"));
            added.map_err(|error| error.to_string())?;
        }
        Ok(Arc::new(Self(registry)))
    }
}

fn described(
    spec: &bunraku_engine::TypeSpec,
    function: &bunraku_engine::StateFunction,
) -> Function {
    let owned = |text: &str| text.to_owned();
    Function {
        type_name: spec.name.to_owned(),
        implies: function
            .implies
            .iter()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect(),
        arguments: (function.arguments.iter())
            .map(|argument| (owned(argument.salt), owned(argument.ours)))
            .collect(),
        name_parameter: spec.name_parameter.to_owned(),
        parameters: spec
            .parameters
            .iter()
            .map(|parameter| owned(parameter.name))
            .collect(),
    }
}

/// The time limit for a command of a template.
const LONGEST_COMMAND: Duration = Duration::from_secs(3600);

/// Returns the holders of a lock, according to the servers.
fn lock_holders(fleet: &Fleet, name: &str) -> Result<Vec<String>, WorldError> {
    let locks = fleet
        .locks()
        .map_err(|why| WorldError::new(format!("the locks cannot be read: {why}")))?;
    let mut owners: Vec<String> = Vec::new();
    let lock = locks.into_iter().find(|lock| lock.name.as_str() == name);
    for holder in lock.into_iter().flat_map(|lock| lock.holders) {
        // In a lock with several slots, one owner may hold more than one.
        if !owners.contains(&holder.owner) {
            owners.push(holder.owner);
        }
    }
    Ok(owners)
}

/// Calls an execution function. These are the ones that templates of a masterless tree use most.
fn call(
    fleet: &Fleet,
    function: &str,
    positional: &[Value],
    named: &Map<String, Value>,
) -> Result<Value, WorldError> {
    let argument = |position: usize, name: &str| {
        let value = positional.get(position).or_else(|| named.get(name));
        value
            .and_then(Value::as_str)
            .ok_or_else(|| WorldError::new(format!("`{function}` needs the argument `{name}`")))
    };
    match function {
        "cmd.run" | "cmd.shell" | "cmd.run_stdout" | "cmd.retcode" | "cmd.run_all" => {
            let command = argument(0, "cmd")?;
            // The program stays in our process group, so that Ctrl-C ends it too.
            let program = Program::new("/bin/sh").args(["-c", command]).in_our_group();
            let output = program
                .output_blocking(OutputLimits::within(LONGEST_COMMAND))
                .map_err(|error| WorldError::new(format!("`{command}` {error}")))?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
            let code = output.status.code().unwrap_or(-1);
            Ok(match function {
                "cmd.retcode" => json!(code),
                "cmd.run_all" => json!({
                    "retcode": code, "stdout": text(&output.stdout), "stderr": text(&output.stderr),
                }),
                _ => json!(text(&output.stdout)),
            })
        }
        "cmd.which" | "cmd.has_exec" => {
            let program = argument(0, "cmd")?;
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path)
                .map(|directory| directory.join(program))
                .find(|file| file.is_file());
            Ok(if function == "cmd.has_exec" {
                json!(found.is_some())
            } else {
                found.map_or(Value::Null, |file| json!(file.to_string_lossy()))
            })
        }
        "file.file_exists" => Ok(json!(Path::new(argument(0, "path")?).is_file())),
        "file.directory_exists" => Ok(json!(Path::new(argument(0, "path")?).is_dir())),
        "file.read" => {
            let path = argument(0, "path")?;
            let text = std::fs::read_to_string(path);
            text.map(Value::from)
                .map_err(|error| WorldError::new(format!("cannot read {path}: {error}")))
        }
        "environ.get" => {
            let default = positional
                .get(1)
                .or_else(|| named.get("default"))
                .cloned()
                .unwrap_or(json!(""));
            Ok(std::env::var(argument(0, "key")?).map_or(default, Value::from))
        }
        "lock.holder" | "lock.holders" => {
            let holders = lock_holders(fleet, argument(0, "name")?)?;
            Ok(match function {
                "lock.holders" => json!(holders),
                _ => holders.first().map_or(Value::Null, |first| json!(first)),
            })
        }
        "test.ping" => Ok(json!(true)),
        _ => Err(WorldError::new(format!(
            "the execution function `{function}` is not available in templates"
        ))),
    }
}
