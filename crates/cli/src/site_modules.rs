//! The parts of a Puppet environment on disk that planning a site needs: manifests, modules, data
//! files.
//!
//! Nothing outside of the environment and its modulepath is read, whatever path the code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use bunraku_compile::compiles::PuppetFunctions;
use bunraku_puppet::{FunctionCall, World, WorldError};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The facts of nodes, by certificate name.
pub(crate) type FactsByNode = BTreeMap<String, Map<String, Value>>;

/// The rows that match each query, or the reason why there are none.
pub(crate) type RowsByQuery = BTreeMap<String, Result<Value, String>>;

/// The maximum number of manifests. More indicate a wrong path.
const MOST_MANIFESTS: usize = 10_000;

pub(crate) struct Environment {
    name: String,
    manifests: Vec<PathBuf>,
    /// The directory with `environment.conf`, `manifests` and data files.
    root: PathBuf,
    modulepath: Vec<PathBuf>,
    facts: FactsByNode,
    rows: RowsByQuery,
    /// Queries of the code that have no rows yet.
    unanswered: Mutex<BTreeSet<String>>,
    /// Started for the first function that is written in Ruby.
    functions: OnceLock<Result<PuppetFunctions, String>>,
}

/// Returns true for a manifest or a directory of manifests.
pub(crate) fn is_manifests(path: &Path) -> bool {
    path.is_dir()
        || path
            .extension()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("pp"))
}

impl Environment {
    /// Returns the environment of these manifests or directories.
    pub(crate) fn of(paths: &[PathBuf], modulepath: &[PathBuf]) -> Self {
        let root = paths.first().map_or_else(PathBuf::new, |path| root(path));
        let settings = Settings::read(&root);
        let manifests = paths.iter().map(|path| {
            if path.join("manifests").is_dir() {
                settings
                    .manifest
                    .clone()
                    .unwrap_or_else(|| path.join("manifests"))
            } else {
                path.clone()
            }
        });
        let manifests = manifests.collect();
        let modulepath = match (modulepath, settings.modulepath) {
            ([], Some(configured)) => configured,
            ([], None) => beside(paths, &root),
            (given, _) => given.to_vec(),
        };
        Self {
            name: "production".to_owned(),
            manifests,
            root,
            modulepath,
            facts: FactsByNode::new(),
            rows: RowsByQuery::new(),
            unanswered: Mutex::default(),
            functions: OnceLock::new(),
        }
    }

    pub(crate) fn named(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// Adds facts of nodes, and rows of queries.
    pub(crate) fn learn(&mut self, facts: FactsByNode, rows: RowsByQuery) {
        self.facts.extend(facts);
        self.rows.extend(rows);
    }

    /// Returns the queries that had no rows when the code asked.
    pub(crate) fn take_unanswered(&self) -> BTreeSet<String> {
        let unanswered = self.unanswered.lock();
        std::mem::take(&mut *unanswered.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns all manifests in the order in which Puppet reads them: by name, directories
    /// depth-first.
    pub(crate) fn manifests(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for path in &self.manifests {
            if path.is_dir() {
                collect(path, &mut found)?;
            } else {
                found.push(path.clone());
            }
        }
        if found.is_empty() {
            Err(Failure::usage(format!(
                "there is no manifest (.pp) in {}",
                self.root.display()
            )))
        } else {
            Ok(found)
        }
    }

    fn functions(&self) -> Result<&PuppetFunctions, WorldError> {
        let start = || {
            let modules = self.modulepath.iter();
            let modules = modules.filter_map(|path| path.canonicalize().ok());
            PuppetFunctions::new(&self.root, &self.name, modules.collect())
                .map_err(|error| format!("functions in Ruby cannot be called: {error}"))
        };
        let started = self.functions.get_or_init(start);
        started.as_ref().map_err(|error| WorldError(error.clone()))
    }

    /// Maps an absolute path on a Puppet server to the path inside of this environment.
    fn inside(&self, path: &str) -> Option<PathBuf> {
        let on_server = [
            "/etc/puppetlabs/code/environments/",
            "/etc/puppet/code/environments/",
        ];
        let below = on_server
            .iter()
            .find_map(|prefix| path.strip_prefix(prefix));
        let wanted = match below.and_then(|rest| rest.split_once('/')) {
            Some((_, rest)) => self.root.join(rest),
            None => self.root.join(path),
        };
        let wanted = wanted.canonicalize().ok()?;
        let root = self.root.canonicalize().ok()?;
        wanted.starts_with(root).then_some(wanted)
    }
}

impl World for Environment {
    fn autoload(&self, name: &str) -> Result<Option<(String, String)>, WorldError> {
        let plain = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let parts: Vec<&str> = name.split("::").collect();
        if !parts.iter().all(|part| plain(part)) {
            return Ok(None);
        }
        let (module, rest) = (parts[0], &parts[1..]);
        let file = match rest {
            [] => "init.pp".to_owned(),
            rest => format!("{}.pp", rest.join("/")),
        };
        for directory in &self.modulepath {
            for kind in ["manifests", "functions", "types"] {
                let path = directory.join(module).join(kind).join(&file);
                if path.is_file() {
                    let text = read(&path)?;
                    return Ok(Some((path.display().to_string(), text)));
                }
            }
        }
        Ok(None)
    }

    fn environment(&self) -> &str {
        &self.name
    }

    fn facts(&self, node: &str) -> Option<Map<String, Value>> {
        self.facts.get(node).cloned()
    }

    fn type_parameters(&self, type_name: &str) -> Option<Vec<String>> {
        let file = Path::new("lib/puppet/type").join(format!("{type_name}.rb"));
        let modules = self
            .modulepath
            .iter()
            .filter_map(|path| std::fs::read_dir(path).ok());
        let mut types = modules
            .flatten()
            .flatten()
            .map(|module| module.path().join(&file));
        let text = types.find_map(|path| std::fs::read_to_string(path).ok())?;
        Some(text.lines().filter_map(parameter).collect())
    }

    fn call(&self, name: &str, call: &FunctionCall) -> Result<Option<Value>, WorldError> {
        let called = (self.functions()?).call(name, &call.arguments, &call.node);
        called.map_err(|error| WorldError(error.to_string()))
    }

    fn query(&self, query: &str) -> Result<Option<Value>, WorldError> {
        match self.rows.get(query) {
            Some(Ok(rows)) => Ok(Some(rows.clone())),
            Some(Err(reason)) => Err(WorldError(reason.clone())),
            None => {
                let unanswered = self.unanswered.lock();
                let mut unanswered = unanswered.unwrap_or_else(PoisonError::into_inner);
                unanswered.insert(query.to_owned());
                Ok(None)
            }
        }
    }

    fn data_file(&self, path: &str) -> Result<Option<Value>, WorldError> {
        let Some(path) = self.inside(path) else {
            return Ok(None);
        };
        let content = serde_saphyr::from_str(&read(&path)?);
        let unreadable =
            |error| WorldError(format!("{} is not YAML or JSON: {error}", path.display()));
        content.map(Some).map_err(unreadable)
    }
}

/// Returns the name in `newparam(:host)` or `newproperty :port do` of a Ruby type.
fn parameter(line: &str) -> Option<String> {
    let line = line.trim_start();
    let rest = line
        .strip_prefix("newparam")
        .or_else(|| line.strip_prefix("newproperty"))?;
    let name = rest.trim_start_matches(['(', ' ', ':', '\'', '"']);
    let end = name
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .unwrap_or(name.len());
    (end > 0 && name.len() < rest.len()).then(|| name[..end].to_owned())
}

fn read(path: &Path) -> Result<String, WorldError> {
    std::fs::read_to_string(path)
        .map_err(|error| WorldError(format!("cannot read {}: {error}", path.display())))
}

/// Returns the environment's directory: the given one, or the one above `manifests`.
fn root(path: &Path) -> PathBuf {
    if path.join("manifests").is_dir() {
        return path.to_owned();
    }
    let directory = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(Path::new(""))
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    if directory
        .file_name()
        .is_some_and(|name| name == "manifests")
    {
        directory.join("..")
    } else {
        directory.to_owned()
    }
}

/// Returns `modules` beside the manifests or their directory.
fn beside(paths: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let near = paths.iter().filter_map(|path| path.parent());
    let near = near.flat_map(|parent| [parent.join("modules"), parent.join("..").join("modules")]);
    for directory in std::iter::once(root.join("modules")).chain(near) {
        if directory.is_dir() && !found.contains(&directory) {
            found.push(directory);
        }
    }
    found
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = |error: &std::io::Error| {
        Failure::new(format!("cannot read {}", directory.display())).caused_by(error)
    };
    let entries = std::fs::read_dir(directory).map_err(|error| cannot(&error))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| cannot(&error))?;
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.is_symlink() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "pp") {
            found.push(path);
        }
        if found.len() > MOST_MANIFESTS {
            let message = format!("{} has too many manifests", directory.display());
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

/// The settings in `environment.conf`, with paths below the environment.
#[derive(Default)]
struct Settings {
    manifest: Option<PathBuf>,
    modulepath: Option<Vec<PathBuf>>,
}

impl Settings {
    fn read(root: &Path) -> Self {
        let text = std::fs::read_to_string(root.join("environment.conf")).unwrap_or_default();
        let mut settings = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            let value = value.trim();
            match name.trim() {
                "manifest" if !value.contains('$') => settings.manifest = Some(root.join(value)),
                "modulepath" => {
                    // `$basemodulepath` belongs to the server.
                    let parts = value.split(':').filter(|part| !part.contains('$'));
                    let parts = parts.map(|part| root.join(part.trim()));
                    settings.modulepath = Some(parts.collect());
                }
                _ => {}
            }
        }
        settings
    }
}
