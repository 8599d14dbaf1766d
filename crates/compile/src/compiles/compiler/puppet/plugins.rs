//! The plugins of an environment's modules: types, providers, functions and facts.
//!
//! All modules are merged into one archive, as Puppet merges them on a node: `lib` and `facts.d`,
//! and of two modules with the same name the first one in the path. The same files always give the
//! same bytes, so a commit that changes no plugin gives nodes nothing to fetch.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bunraku_model::catalog::{CatalogSource, PLUGINS_ADDRESS, SourceFile};
use bunraku_model::{Catalog, ContentId};
use bytes::Bytes;
use serde_json::Value;

use crate::catalogs::{CatalogFile, FileSource};

/// The directories of a module that nodes get.
const PARTS: [&str; 2] = ["lib", "facts.d"];
/// Maximum number of files.
const MOST_FILES: usize = 50_000;
/// Maximum size of all files in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Maximum depth of a directory. Links may form cycles, and the system follows 40 of them.
const DEEPEST: usize = 30;
/// Directories that Puppet does not copy either.
const IGNORED: [&str; 4] = [".git", ".svn", ".hg", "CVS"];

/// The plugins of one commit, archived when somebody first needs them.
#[derive(Default)]
pub(crate) struct ModulePlugins {
    modules: Vec<PathBuf>,
    archived: OnceLock<Result<Option<Arc<PluginArchive>>, String>>,
}

/// The archived plugins.
pub(crate) struct PluginArchive {
    pub(crate) bytes: Bytes,
    file: SourceFile,
    /// The resource types that the modules define.
    types: BTreeSet<String>,
}

impl ModulePlugins {
    pub(crate) fn new(modules: Vec<PathBuf>) -> Self {
        Self {
            modules,
            archived: OnceLock::new(),
        }
    }

    /// Returns the archive, or nothing if no module has plugins. Blocks.
    pub(crate) fn archive(&self) -> Result<Option<Arc<PluginArchive>>, String> {
        let archived = self.archived.get_or_init(|| {
            let files = found(&self.modules)?;
            if files.is_empty() {
                return Ok(None);
            }
            let bytes = Bytes::from(packed(&files)?);
            Ok(Some(Arc::new(PluginArchive {
                file: SourceFile {
                    content: ContentId::of(&bytes),
                    size: bytes.len() as u64,
                },
                types: types(&files),
                bytes,
            })))
        });
        archived.clone()
    }

    /// Adds the archive to a catalog that needs plugins, so that a release fixes their version.
    /// Other catalogs stay the same when a plugin changes. Blocks.
    pub(crate) fn pin(
        &self,
        catalog: &mut Catalog,
        files: &mut Vec<CatalogFile>,
    ) -> Result<(), String> {
        let Some(archive) = self.archive()? else {
            return Ok(());
        };
        if !archive.is_needed_by(catalog) {
            return Ok(());
        }
        let source = CatalogSource::File(archive.file);
        catalog.sources.insert(PLUGINS_ADDRESS.to_owned(), source);
        files.push(CatalogFile {
            content: archive.file.content,
            from: FileSource::Bytes(archive.bytes.clone()),
        });
        Ok(())
    }
}

impl PluginArchive {
    /// Returns whether a catalog has a type of a module, a chosen provider, or a function to call
    /// on the node.
    fn is_needed_by(&self, catalog: &Catalog) -> bool {
        catalog.resources.iter().any(|resource| {
            self.types.contains(&resource.type_name.to_lowercase())
                || resource.parameters.contains_key("provider")
                || resource.parameters.values().any(is_deferred)
        })
    }
}

/// Returns whether a value contains a function call that the node makes.
fn is_deferred(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(is_deferred),
        Value::Object(map) => {
            map.get("__ptype").and_then(Value::as_str) == Some("Deferred")
                || map.values().any(is_deferred)
        }
        _ => false,
    }
}

/// The files by their path in the archive.
type Files = BTreeMap<String, PathBuf>;

fn found(directories: &[PathBuf]) -> Result<Files, String> {
    let mut modules = BTreeMap::new();
    for directory in directories {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| is_module(name)) {
                modules.entry(name.to_owned()).or_insert(entry.path());
            }
        }
    }
    let mut files = Files::new();
    for module in modules.values() {
        for part in PARTS {
            let directory = module.join(part);
            if directory.is_dir() {
                walk(&directory, part, 0, &mut files)?;
            }
        }
    }
    Ok(files)
}

/// Puppet ignores directories with other names.
fn is_module(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(|next| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '_')
}

fn walk(directory: &Path, below: &str, depth: usize, files: &mut Files) -> Result<(), String> {
    let unreadable = |error| format!("{} cannot be read: {error}", directory.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?);
    }
    for entry in entries {
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(format!("{} is not a name in UTF-8", entry.path().display()));
        };
        let (path, inside) = (entry.path(), format!("{below}/{name}"));
        if path.is_dir() && !IGNORED.contains(&name.as_str()) {
            if depth >= DEEPEST {
                return Err(format!(
                    "{} is nested too deeply, or links to itself",
                    path.display()
                ));
            }
            walk(&path, &inside, depth + 1, files)?;
        } else if path.is_file() {
            files.entry(inside).or_insert(path);
        }
        if files.len() > MOST_FILES {
            return Err(format!(
                "the modules have more than {MOST_FILES} plugin files"
            ));
        }
    }
    Ok(())
}

fn packed(files: &Files) -> Result<Vec<u8>, String> {
    let gzip = flate2::GzBuilder::new().mtime(0);
    let mut archive = tar::Builder::new(gzip.write(Vec::new(), flate2::Compression::fast()));
    let mut size = 0;
    for (inside, path) in files {
        let unreadable = |error| format!("{} cannot be read: {error}", path.display());
        let content = std::fs::read(path).map_err(unreadable)?;
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions();
        size += content.len() as u64;
        if size > MOST_BYTES {
            return Err(format!(
                "the plugin files have more than {MOST_BYTES} bytes"
            ));
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(if mode.mode() & 0o111 == 0 {
            0o644
        } else {
            0o755
        });
        header.set_entry_type(tar::EntryType::Regular);
        let added = archive.append_data(&mut header, inside, content.as_slice());
        added.map_err(|error| format!("cannot archive {inside}: {error}"))?;
    }
    let finished = archive.into_inner().and_then(|mut gzip| {
        gzip.flush()?;
        gzip.finish()
    });
    finished.map_err(|error| format!("cannot archive the plugins: {error}"))
}

fn types(files: &Files) -> BTreeSet<String> {
    let name = |path: &String| {
        let name = path.strip_prefix("lib/puppet/type/")?.strip_suffix(".rb")?;
        (!name.contains('/')).then(|| name.to_owned())
    };
    files.keys().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Read;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        }
    }

    fn plugins(root: &Path) -> ModulePlugins {
        ModulePlugins::new(vec![root.join("site"), root.join("modules")])
    }

    /// Returns `path=content` of each file in the archive.
    fn listed(plugins: &ModulePlugins) -> Vec<String> {
        let archive = plugins.archive().expect("archived").expect("plugins");
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&archive.bytes[..]));
        let entries = tar.entries().expect("entries");
        entries
            .map(|entry| {
                let mut entry = entry.expect("an entry");
                let path = entry.path().expect("a path").display().to_string();
                let mut text = String::new();
                entry.read_to_string(&mut text).expect("text");
                format!("{path}={text}")
            })
            .collect()
    }

    #[test]
    fn modules_are_merged_and_the_first_of_two_with_the_same_name_counts() {
        let root = tempfile::TempDir::new().expect("a directory");
        write(
            root.path(),
            &[
                ("site/app/lib/facter/role.rb", "first"),
                ("modules/app/lib/facter/role.rb", "second"),
                (
                    "modules/app/lib/facter/hidden.rb",
                    "of a module that does not count",
                ),
                ("modules/db/lib/puppet/type/db_user.rb", "type"),
                ("modules/db/facts.d/site.yaml", "a: 1"),
                ("modules/db/manifests/init.pp", "not a plugin"),
                ("modules/Not-A-Module/lib/facter/x.rb", "no"),
                ("modules/db/lib/.git/config", "no"),
            ],
        );
        let all = [
            "facts.d/site.yaml=a: 1",
            "lib/facter/role.rb=first",
            "lib/puppet/type/db_user.rb=type",
        ];
        assert_eq!(listed(&plugins(root.path())), all);
        let again = plugins(root.path()).archive().expect("archived");
        let first = plugins(root.path()).archive().expect("archived");
        assert_eq!(again.map(|one| one.file), first.map(|one| one.file));
    }

    #[test]
    fn only_catalogs_that_need_plugins_name_them() {
        let root = tempfile::TempDir::new().expect("a directory");
        let files = [("modules/db/lib/puppet/type/db_user.rb", "type")];
        write(root.path(), &files);
        let plugins = plugins(root.path());
        let pinned = |resource: Value| {
            let text = json!({"name": "web-1", "resources": [resource]});
            let mut catalog: Catalog = serde_json::from_value(text).expect("a catalog");
            let mut files = Vec::new();
            plugins.pin(&mut catalog, &mut files).expect("pinned");
            assert_eq!(files.len(), catalog.contents().len());
            !files.is_empty()
        };
        assert!(!pinned(json!({"type": "File", "title": "/a"})));
        assert!(pinned(json!({"type": "Db_user", "title": "a"})));
        let provider = json!({"provider": "gem"});
        assert!(pinned(
            json!({"type": "Package", "title": "a", "parameters": provider})
        ));
        let call = json!({"content": [{"__ptype": "Deferred", "name": "f"}]});
        assert!(pinned(
            json!({"type": "File", "title": "/a", "parameters": call})
        ));
    }

    #[test]
    fn a_directory_that_contains_itself_is_refused() {
        let root = tempfile::TempDir::new().expect("a directory");
        write(root.path(), &[("modules/app/lib/a.rb", "x")]);
        let inside = root.path().join("modules/app/lib/again");
        std::os::unix::fs::symlink(".", inside).expect("a link");
        let refused = plugins(root.path()).archive().err().expect("refused");
        assert!(refused.contains("links to itself"), "{refused}");
    }
}
