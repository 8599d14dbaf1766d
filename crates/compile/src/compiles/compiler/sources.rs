//! Makes a catalog static: the catalog gets the content hash of every
//! environment file that it refers to.
//!
//! A commit's files never change, so each is hashed once for all nodes.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bunraku_model::catalog::{CatalogSource, Resource, SourceEntry, SourceFile};
use bunraku_model::{Catalog, ContentId};
use bunraku_wire::api::CompileProblem;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::http_sources::{HttpFetcher, HttpSourcePolicy, is_http};
use super::puppet::{HttpSources, PuppetOptions, PuppetSettings, module_directories};
use crate::catalogs::{CatalogFile, FileSource};
use crate::code::is_below;

/// Maximum number of entries below one referenced directory.
const MOST_ENTRIES: usize = 10_000;
/// Maximum depth of a directory tree. Links may form cycles.
const DEEPEST: usize = 40;

/// Resolves the addresses of one tree.
pub(crate) struct Sources {
    root: PathBuf,
    /// `salt://` is below this.
    states: Option<PathBuf>,
    /// `puppet:///modules/NAME/…` is below one of these.
    modules: Vec<PathBuf>,
    /// `puppet:///NAME/…` is below this.
    mounts: BTreeMap<String, PathBuf>,
    http: HttpSourcePolicy,
    hashed: Mutex<HashMap<PathBuf, SourceFile>>,
}

impl Sources {
    pub(crate) fn new(root: &Path, states: Option<&str>, modules: &[String]) -> Self {
        Self {
            root: root.to_owned(),
            states: states.map(|below| root.join(below)),
            modules: modules.iter().map(|below| root.join(below)).collect(),
            mounts: BTreeMap::new(),
            http: HttpSourcePolicy::Ignore,
            hashed: Mutex::default(),
        }
    }

    /// Creates the sources for Puppet code: files in modules, and in the server's mounts.
    pub(crate) fn of_puppet(
        root: &Path,
        settings: &PuppetSettings,
        options: &PuppetOptions,
    ) -> Self {
        Self {
            modules: module_directories(root, &options.base_modules),
            mounts: options.mounts.clone(),
            http: match settings.http_sources {
                HttpSources::Refuse => HttpSourcePolicy::Refuse,
                HttpSources::Pin => HttpSourcePolicy::Pin(HttpFetcher::new(&options.http_hosts)),
            },
            ..Self::new(root, None, &[])
        }
    }

    /// Adds the files that the catalog refers to, and returns the location of
    /// their bytes. Blocks.
    pub(crate) fn make_static(
        &self,
        catalog: &mut Catalog,
    ) -> Result<Vec<CatalogFile>, Vec<CompileProblem>> {
        let mut found = FoundFile::default();
        let mut problems = Vec::new();
        for resource in &catalog.resources {
            for (name, value) in &resource.parameters {
                let read = if name == "source" && is_file(resource) {
                    self.file_source(resource, value, &mut found)
                } else {
                    self.parameter(name, value, &mut found)
                };
                if let Err(message) = read {
                    problems.push(at(resource, name, message));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        catalog.sources = found.sources;
        let file = |(content, path)| CatalogFile {
            content,
            from: FileSource::Path(path),
        };
        Ok(found.files.into_iter().map(file).collect())
    }

    /// Resolves a parameter. One address in `source` must exist. Any other
    /// value that looks like an address may be plain text.
    fn parameter(&self, name: &str, value: &Value, found: &mut FoundFile) -> Result<(), String> {
        let addresses = strings(value);
        let mut missing = Vec::new();
        let mut others = 0;
        for address in &addresses {
            match self.candidates(address) {
                None => others += 1,
                Some(mut paths) => {
                    paths.retain(|path| path.exists());
                    match paths.first() {
                        None => missing.push(*address),
                        Some(first) if is_plugins(address) && first.is_dir() => {
                            self.take_merged(address, &paths, found)?;
                        }
                        Some(first) => self.take(address, first, found)?,
                    }
                }
            }
        }
        let none_led_anywhere = others == 0 && missing.len() == addresses.len();
        match missing.first() {
            Some(first) if name == "source" && none_led_anywhere => {
                Err(format!("`{first}` is not in the environment"))
            }
            _ => Ok(()),
        }
    }

    /// Resolves the `source` of a file. This includes an address on the web,
    /// whose content must not change between two runs.
    fn file_source(
        &self,
        resource: &Resource,
        value: &Value,
        found: &mut FoundFile,
    ) -> Result<(), String> {
        let text = |name: &str| resource.parameters.get(name).and_then(Value::as_str);
        if text("ensure") == Some("absent") {
            return Ok(());
        }
        // A checksum already fixes the content.
        if text("checksum_value").is_none() {
            for address in strings(value).into_iter().filter(|one| is_http(one)) {
                self.web_file(address, found)?;
            }
        }
        self.parameter("source", value, found)
    }

    fn web_file(&self, address: &str, found: &mut FoundFile) -> Result<(), String> {
        match &self.http {
            HttpSourcePolicy::Ignore => Ok(()),
            HttpSourcePolicy::Refuse => Err(format!(
                "the content at {address} may change: set `checksum_value` on the file, or set `http_sources: pin`"
            )),
            HttpSourcePolicy::Pin(fetcher) => {
                let file = fetcher.fetch(address)?;
                self.take(address, &file, found)
            }
        }
    }

    /// Returns the paths that an address may mean, or nothing if it is not of this tree.
    fn candidates(&self, address: &str) -> Option<Vec<PathBuf>> {
        let (roots, rest): (Vec<PathBuf>, &str) =
            if let Some(rest) = address.strip_prefix("bunraku:///") {
                (vec![self.root.clone()], rest)
            } else if let Some(rest) = address.strip_prefix("salt://") {
                // `?saltenv=base` only repeats the current environment.
                let rest = rest.split('?').next().unwrap_or(rest);
                (vec![self.states.clone()?], rest)
            } else {
                self.puppet_roots(address)?
            };
        if rest.is_empty() {
            return Some(roots);
        }
        if !is_below(Path::new(rest)) {
            return Some(Vec::new());
        }
        Some(roots.into_iter().map(|root| root.join(rest)).collect())
    }

    /// Resolves `puppet://SERVER/MOUNT/path` to the directories of the mount and the path.
    fn puppet_roots<'a>(&self, address: &'a str) -> Option<(Vec<PathBuf>, &'a str)> {
        let (_server, rest) = address.strip_prefix("puppet://")?.split_once('/')?;
        let (mount, path) = rest.split_once('/').unwrap_or((rest, ""));
        match mount {
            "modules" => {}
            "plugins" => return Some((self.in_modules("lib"), path)),
            "pluginfacts" => return Some((self.in_modules("facts.d"), path)),
            _ => return Some((vec![self.mounts.get(mount)?.clone()], path)),
        }
        let (module, path) = path.split_once('/').unwrap_or((path, ""));
        if !is_below(Path::new(module)) {
            return Some((Vec::new(), path));
        }
        let below = |root: &PathBuf| root.join(module).join("files");
        Some((self.modules.iter().map(below).collect(), path))
    }

    /// Returns this directory of every module. If two modules have the same
    /// name, the first one in the path counts.
    fn in_modules(&self, below: &str) -> Vec<PathBuf> {
        let mut found = BTreeMap::new();
        for directory in &self.modules {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path().join(below);
                found.entry(entry.file_name()).or_insert(path);
            }
        }
        found.into_values().filter(|path| path.is_dir()).collect()
    }

    /// Merges several directories into one, as Puppet serves plugins.
    fn take_merged(
        &self,
        address: &str,
        directories: &[PathBuf],
        found: &mut FoundFile,
    ) -> Result<(), String> {
        let mut merged = BTreeMap::new();
        for directory in directories {
            let mut entries = Vec::new();
            self.walk(directory, "", 0, &mut entries, found)?;
            for entry in entries {
                merged.entry(entry.path.clone()).or_insert(entry);
            }
        }
        let entries = merged.into_values().collect();
        found
            .sources
            .insert(address.to_owned(), CatalogSource::Directory { entries });
        Ok(())
    }

    fn take(&self, address: &str, path: &Path, found: &mut FoundFile) -> Result<(), String> {
        if found.sources.contains_key(address) {
            return Ok(());
        }
        let source = if path.is_dir() {
            let mut entries = Vec::new();
            self.walk(path, "", 0, &mut entries, found)?;
            CatalogSource::Directory { entries }
        } else {
            CatalogSource::File(self.file(path, found)?)
        };
        found.sources.insert(address.to_owned(), source);
        Ok(())
    }

    fn walk(
        &self,
        directory: &Path,
        below: &str,
        depth: usize,
        entries: &mut Vec<SourceEntry>,
        found: &mut FoundFile,
    ) -> Result<(), String> {
        let unreadable = |error| format!("cannot read {}: {error}", self.relative_name(directory));
        let listed = std::fs::read_dir(directory).map_err(unreadable)?;
        let mut names = Vec::new();
        for entry in listed {
            let name = entry.map_err(unreadable)?.file_name();
            let text = name.into_string();
            names.push(text.map_err(|name| format!("{name:?} is not a name in UTF-8"))?);
        }
        names.sort();
        for name in names {
            if entries.len() >= MOST_ENTRIES || depth >= DEEPEST {
                return Err(format!(
                    "{} has more than {MOST_ENTRIES} entries, or a loop of links",
                    self.relative_name(directory)
                ));
            }
            let path = directory.join(&name);
            let below = match below {
                "" => name,
                _ => format!("{below}/{name}"),
            };
            let file = if path.is_dir() {
                None
            } else {
                Some(self.file(&path, found)?)
            };
            entries.push(SourceEntry {
                path: below.clone(),
                file,
            });
            if file.is_none() {
                self.walk(&path, &below, depth + 1, entries, found)?;
            }
        }
        Ok(())
    }

    fn file(&self, path: &Path, found: &mut FoundFile) -> Result<SourceFile, String> {
        let known = self.hashed().get(path).copied();
        let file = match known {
            Some(file) => file,
            None => {
                let file = hash(path).map_err(|error| {
                    format!("cannot read {}: {error}", self.relative_name(path))
                })?;
                self.hashed().insert(path.to_owned(), file);
                file
            }
        };
        found.files.insert(file.content, path.to_owned());
        Ok(file)
    }

    fn hashed(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, SourceFile>> {
        self.hashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relative_name(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        below.display().to_string()
    }
}

/// Returns a text, or the texts in a list.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_plugins(address: &str) -> bool {
    let mount = address
        .strip_prefix("puppet://")
        .and_then(|rest| rest.split('/').nth(1));
    matches!(mount, Some("plugins" | "pluginfacts"))
}

fn is_file(resource: &Resource) -> bool {
    resource.type_name == "File"
}

#[derive(Default)]
struct FoundFile {
    sources: BTreeMap<String, CatalogSource>,
    files: BTreeMap<ContentId, PathBuf>,
}

fn hash(path: &Path) -> std::io::Result<SourceFile> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        size += count as u64;
    }
    Ok(SourceFile {
        content: ContentId::from_digest(hasher.finalize().into()),
        size,
    })
}

fn at(resource: &Resource, parameter: &str, message: String) -> CompileProblem {
    CompileProblem {
        message: format!("{}: {parameter}: {message}", resource.reference()),
        file: resource.file.clone(),
        line: resource.line,
        ..CompileProblem::default()
    }
}
