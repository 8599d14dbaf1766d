//! Archives of plugins, unpacked as directories that are complete or absent.
//!
//! An archive comes from the server and is verified by its hash, yet nothing in it is trusted to
//! stay in its directory: it may contain plain files below `lib` and `facts.d` only, and a bounded
//! number and size of them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path};

use bunraku_model::ContentId;

use super::{PluginError, file_error};

/// Maximum number of files.
const MOST_FILES: usize = 50_000;
/// Maximum size of all files in bytes.
const MOST_BYTES: u64 = 256 << 20;
/// The directory of modules that contain the functions.
const MODULES: &str = "modules";
/// The beginning of the name of a directory that is not complete.
const INCOMING: &str = "incoming-";

/// Unpacks the archive `from` as the directory `to`. Blocks.
pub(super) fn unpack(from: &Path, to: &Path) -> Result<(), PluginError> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let incoming = to.with_file_name(format!("{INCOMING}{name}"));
    let _ = std::fs::remove_dir_all(&incoming);
    let outcome = fill(from, &incoming).and_then(|()| {
        // Everything is on disk before the directory gets its name.
        let directory = std::fs::File::open(&incoming).map_err(file_error(&incoming))?;
        rustix::fs::syncfs(&directory).map_err(|error| file_error(&incoming)(error.into()))?;
        bunraku_files::move_into_place(&incoming, to).map_err(file_error(to))
    });
    if outcome.is_err() {
        let _ = std::fs::remove_dir_all(&incoming);
    }
    outcome
}

fn fill(from: &Path, incoming: &Path) -> Result<(), PluginError> {
    let packed = std::fs::File::open(from).map_err(file_error(from))?;
    let limited = flate2::read::GzDecoder::new(packed).take(2 * MOST_BYTES);
    let mut archive = tar::Archive::new(limited);
    let invalid = |error: std::io::Error| PluginError::Archive(error.to_string());
    for part in ["lib", "facts.d"] {
        let directory = incoming.join(part);
        std::fs::create_dir_all(&directory).map_err(file_error(&directory))?;
    }
    let (mut files, mut size) = (0, 0);
    for entry in archive.entries().map_err(invalid)? {
        let mut entry = entry.map_err(invalid)?;
        let path = entry.path().map_err(invalid)?.into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular || !is_plugin(&path) {
            let text = format!("`{}` is not a plugin file", path.display());
            return Err(PluginError::Archive(text));
        }
        files += 1;
        size += entry.size();
        if files > MOST_FILES || size > MOST_BYTES {
            return Err(PluginError::Archive("it is too large".to_owned()));
        }
        let is_executable = entry.header().mode().map_err(invalid)? & 0o111 != 0;
        let place = incoming.join(&path);
        let parent = place.parent().unwrap_or(incoming);
        std::fs::create_dir_all(parent).map_err(file_error(parent))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if is_executable { 0o755 } else { 0o644 })
            .open(&place)
            .map_err(file_error(&place))?;
        std::io::copy(&mut entry, &mut file).map_err(file_error(&place))?;
    }
    add_modules(incoming)
}

/// Adds a module for each namespace of functions, with a link to all plugins. `puppet apply` finds
/// functions only in modules.
fn add_modules(incoming: &Path) -> Result<(), PluginError> {
    let functions = incoming.join("lib/puppet/functions");
    let Ok(entries) = std::fs::read_dir(&functions) else {
        return Ok(());
    };
    let directories = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<OsString> = directories.map(|entry| entry.file_name()).collect();
    if names.is_empty() {
        // Functions without a namespace are found in any module.
        names.push("plugins".into());
    }
    for name in names {
        let module = incoming.join(MODULES).join(name);
        std::fs::create_dir_all(&module).map_err(file_error(&module))?;
        let link = module.join("lib");
        std::os::unix::fs::symlink("../../lib", &link).map_err(file_error(&link))?;
    }
    Ok(())
}

/// Checks that a path stays below `lib` or `facts.d`.
fn is_plugin(path: &Path) -> bool {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    (path.starts_with("lib") || path.starts_with("facts.d"))
        && path.components().count() > 1
        && path.components().all(is_plain)
}

/// Removes directories that are not complete.
pub(super) fn remove_leftovers(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(INCOMING) {
            remove(&entry.path());
        }
    }
}

/// Removes the directories of archives that nobody needs.
pub(super) fn prune(directory: &Path, is_kept: impl Fn(ContentId) -> bool) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let id = (entry.file_name().to_str()).and_then(|name| name.parse().ok());
        if id.is_some_and(|id| !is_kept(id)) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), error = %error, "old plugins cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::TempDir::new().expect("a directory"))
        }

        fn unpack(&self, entries: &[(&str, tar::EntryType)]) -> Result<(), String> {
            let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            let mut archive = tar::Builder::new(gzip);
            for (path, kind) in entries {
                let mut header = tar::Header::new_gnu();
                header.set_size(4);
                header.set_mode(0o755);
                header.set_entry_type(*kind);
                // Write the name as it is: the library refuses to write hostile ones.
                header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
                if *kind == tar::EntryType::Symlink {
                    header.set_link_name("/etc").expect("a link");
                }
                header.set_cksum();
                archive.append(&header, &b"text"[..]).expect("in memory");
            }
            let packed = archive.into_inner().and_then(|gzip| gzip.finish());
            let from = self.0.path().join("archive");
            std::fs::write(&from, packed.expect("in memory")).expect("written");
            unpack(&from, &self.0.path().join("plugins/set"))
                .map_err(|error| bunraku_model::error_chain(&error))
        }

        fn has(&self, path: &str) -> bool {
            self.0.path().join(path).exists()
        }
    }

    const FILE: tar::EntryType = tar::EntryType::Regular;

    #[test]
    fn files_are_unpacked_with_their_execute_bit() {
        use std::os::unix::fs::PermissionsExt;
        let place = Place::new();
        let entries = [("facts.d/a.sh", FILE), ("lib/facter/role.rb", FILE)];
        place.unpack(&entries).expect("unpacked");
        let path = place.0.path().join("plugins/set/facts.d/a.sh");
        let mode = std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(place.has("plugins/set/lib/facter/role.rb"));
    }

    #[test]
    fn functions_are_also_found_in_modules() {
        let place = Place::new();
        let entries = [("lib/puppet/functions/profile/shout.rb", FILE)];
        place.unpack(&entries).expect("unpacked");
        assert!(place.has("plugins/set/modules/profile/lib/puppet/functions/profile/shout.rb"));
    }

    #[test]
    fn an_archive_that_leads_elsewhere_is_refused_and_nothing_of_it_stays() {
        for (path, kind) in [
            ("../escaped", FILE),
            ("lib/../../escaped", FILE),
            ("/tmp/escaped", FILE),
            ("manifests/init.pp", FILE),
            ("lib", FILE),
            ("lib/link", tar::EntryType::Symlink),
            ("lib/hard", tar::EntryType::Link),
            ("lib/device", tar::EntryType::Char),
        ] {
            let place = Place::new();
            let refused = place.unpack(&[("lib/good.rb", FILE), (path, kind)]);
            let refused = refused.expect_err(path);
            assert!(
                refused.contains("is not a plugin file"),
                "{path}: {refused}"
            );
            assert!(!place.has("plugins/set"), "{path}");
            assert!(!place.has("plugins/incoming-set"), "{path}");
            assert!(
                !place.has("escaped") && !place.has("plugins/escaped"),
                "{path}"
            );
        }
    }

    #[test]
    fn an_archive_that_ends_early_is_refused() {
        let place = Place::new();
        place.unpack(&[("lib/a.rb", FILE)]).expect("unpacked");
        let packed = std::fs::read(place.0.path().join("archive")).expect("read");
        let cut = place.0.path().join("cut");
        std::fs::write(&cut, &packed[..packed.len() / 2]).expect("written");
        let other = place.0.path().join("plugins/other");
        unpack(&cut, &other).expect_err("refused");
        assert!(!other.exists());
    }

    #[test]
    fn leftovers_and_old_directories_are_removed() {
        let place = Place::new();
        let (old, new) = (ContentId::of(b"old"), ContentId::of(b"new"));
        let directories = [old.to_string(), new.to_string(), "incoming-x".to_owned()];
        for name in &directories {
            std::fs::create_dir(place.0.path().join(name)).expect("made");
        }
        remove_leftovers(place.0.path());
        prune(place.0.path(), |id| id == new);
        let left = directories.map(|name| place.has(&name));
        assert_eq!(left, [false, true, false]);
    }
}
