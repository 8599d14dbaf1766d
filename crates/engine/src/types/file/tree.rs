//! Everything below a directory: copied from a source, owned, purged.
//!
//! Paths that another resource manages are skipped: its own declaration decides.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bunraku_model::Glob;
use rustix::fs::{Dir, FileType};

use super::desired::{Content, DesiredFile, Tree};
use super::land::{self, Finish};
use super::observed::{Attributes, ObservedFile, PathContent, found};
use super::place::Place;
use crate::{Change, DisplayValue, ReadAccess, SourceEntry, StepError, WriteAccess};

/// One entry below a directory that differs.
pub(crate) struct TreeDifference {
    pub(super) path: PathBuf,
    pub(super) act: TreeAction,
}

pub(super) enum TreeAction {
    Directory(Finish),
    /// A file to write from this address, in place of the found object.
    File {
        address: String,
        finish: Finish,
        old: PathContent,
    },
    Attributes {
        found: PathContent,
        finish: Finish,
    },
    Remove(PathContent),
}

/// Observes the whole tree. Only paths are held in memory, no contents.
pub(super) fn look(
    desired: &DesiredFile,
    tree: &Tree,
    observed: &ObservedFile,
    access: &ReadAccess<'_>,
) -> Result<Vec<TreeDifference>, StepError> {
    let source = source_entries(desired, tree, access)?;
    let mut present = BTreeMap::new();
    if let PathContent::Directory(_) = observed.found {
        walk(&observed.path, tree, &mut present, access)?;
    }
    let mut below = Vec::new();
    for (relative, entry) in &source {
        let path = observed.path.join(relative);
        if !access.is_managed(&path) {
            below.extend(from_source(
                desired,
                observed,
                &path,
                entry,
                present.get(&path),
                access,
            )?);
        }
    }
    for (path, found) in &present {
        let relative = path.strip_prefix(&observed.path).unwrap_or(path);
        if source.contains_key(relative) || access.is_managed(path) {
            continue;
        }
        if tree.purge {
            let purgeable = tree.purge_directories || !matches!(found, PathContent::Directory(_));
            let inside_removed = below.last().is_some_and(|last: &TreeDifference| {
                matches!(last.act, TreeAction::Remove(_)) && path.starts_with(&last.path)
            });
            if purgeable && !inside_removed && !access.manages_below(path) {
                below.push(TreeDifference {
                    path: path.clone(),
                    act: TreeAction::Remove(found.clone()),
                });
            }
        } else if tree.recurse {
            below.extend(owned(desired, observed, path, found));
        }
    }
    Ok(below)
}

/// Returns the entries of a source directory by their relative paths.
fn source_entries(
    desired: &DesiredFile,
    tree: &Tree,
    access: &ReadAccess<'_>,
) -> Result<BTreeMap<PathBuf, SourceEntry>, StepError> {
    let Content::Source { addresses, .. } = &desired.content else {
        return Ok(BTreeMap::new());
    };
    let mut last = StepError::new("no source");
    for address in addresses {
        match access.sources().list(address) {
            Ok(entries) => {
                let wanted = |entry: &SourceEntry| {
                    let names: Vec<&OsStr> = entry.path.iter().collect();
                    names.len() <= tree.limit && !names.iter().any(|name| ignored(tree, name))
                };
                return Ok(entries
                    .into_iter()
                    .filter(wanted)
                    .map(|entry| (entry.path.clone(), entry))
                    .collect());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ignored(tree: &Tree, name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    (tree.ignore.iter()).any(|pattern| Glob::with_wildcards(pattern).matches(&name))
}

/// Returns everything below a directory. Links are not followed.
fn walk(
    top: &Path,
    tree: &Tree,
    present: &mut BTreeMap<PathBuf, PathContent>,
    access: &ReadAccess<'_>,
) -> Result<(), StepError> {
    let mut open = vec![(top.to_owned(), 1)];
    while let Some((directory, depth)) = open.pop() {
        if access.cancellation().is_cancelled() {
            return Err(StepError::interrupted());
        }
        let cannot = |error: rustix::io::Errno| {
            StepError::because(
                format!("cannot list {}", directory.display()),
                std::io::Error::from(error),
            )
        };
        let handle = super::place::directory(&directory);
        let handle = handle.map_err(|error| StepError::because("the path is not usable", error))?;
        for entry in Dir::read_from(&handle).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name: &OsStr =
                std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || ignored(tree, name) {
                continue;
            }
            let stat = rustix::fs::statat(&handle, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            // Removed since it was listed.
            let Ok(stat) = stat else {
                continue;
            };
            let path = directory.join(name);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && depth < tree.limit {
                open.push((path.clone(), depth + 1));
            }
            present.insert(path, found(&stat, None));
        }
    }
    Ok(())
}

fn from_source(
    desired: &DesiredFile,
    observed: &ObservedFile,
    path: &Path,
    entry: &SourceEntry,
    there: Option<&PathContent>,
    access: &ReadAccess<'_>,
) -> Result<Option<TreeDifference>, StepError> {
    let below = |act| {
        Some(TreeDifference {
            path: path.to_owned(),
            act,
        })
    };
    if entry.directory {
        return Ok(match there {
            Some(found @ PathContent::Directory(_)) => owned(desired, observed, path, found),
            _ => below(TreeAction::Directory(finish(desired, observed, true, None))),
        });
    }
    let old = there.cloned().unwrap_or(PathContent::Nothing);
    if let (PathContent::File(attributes), false) = (&old, desired.replace) {
        return Ok(owned(
            desired,
            observed,
            path,
            &PathContent::File(*attributes),
        ));
    }
    if let PathContent::File(attributes) = &old {
        if same(path, &entry.address, access)? {
            return Ok(owned(
                desired,
                observed,
                path,
                &PathContent::File(*attributes),
            ));
        }
        let finish = finish(desired, observed, false, Some(*attributes));
        return Ok(below(TreeAction::File {
            address: entry.address.clone(),
            finish,
            old,
        }));
    }
    Ok(below(TreeAction::File {
        address: entry.address.clone(),
        finish: finish(desired, observed, false, None),
        old,
    }))
}

fn same(path: &Path, address: &str, access: &ReadAccess<'_>) -> Result<bool, StepError> {
    let cannot = |error| StepError::because(format!("cannot compare {}", path.display()), error);
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    let mut old = std::fs::File::from(place.open().map_err(std::io::Error::from).map_err(cannot)?);
    let mut new = access.sources().open(address)?;
    super::content::same_streams(&mut old, &mut *new).map_err(cannot)
}

/// Returns the desired attributes of an entry below, if they differ.
fn owned(
    desired: &DesiredFile,
    observed: &ObservedFile,
    path: &Path,
    found: &PathContent,
) -> Option<TreeDifference> {
    let (now, directory) = match found {
        PathContent::File(now) => (*now, false),
        PathContent::Directory(now) => (*now, true),
        PathContent::Nothing | PathContent::Link(_) | PathContent::Other(_) => return None,
    };
    let finish = finish(desired, observed, directory, Some(now));
    let differs = finish.mode != now.mode
        || finish.uid.is_some_and(|uid| uid != now.uid)
        || finish.gid.is_some_and(|gid| gid != now.gid);
    differs.then(|| TreeDifference {
        path: path.to_owned(),
        act: TreeAction::Attributes {
            found: found.clone(),
            finish,
        },
    })
}

fn finish(
    desired: &DesiredFile,
    observed: &ObservedFile,
    directory: bool,
    now: Option<Attributes>,
) -> Finish {
    let mode = if directory {
        &desired.directory_mode
    } else {
        &desired.file_mode
    };
    Finish::wanted(mode.as_ref(), observed, directory, now)
}

/// Returns the change to report for a difference below.
pub(super) fn change(observed: &ObservedFile, below: &TreeDifference) -> Change {
    let relative = below
        .path
        .strip_prefix(&observed.path)
        .unwrap_or(&below.path)
        .to_string_lossy()
        .into_owned();
    match &below.act {
        TreeAction::Directory(_) => Change::new(relative, DisplayValue::Absent, "directory"),
        TreeAction::File { old, .. } => Change::new(relative, shown(old), "content of the source"),
        TreeAction::Attributes {
            found: PathContent::File(now) | PathContent::Directory(now),
            finish,
        } => {
            let text = |mode: u32, uid: u32, gid: u32| format!("{mode:04o} {uid}:{gid}");
            let to = text(
                finish.mode,
                finish.uid.unwrap_or(now.uid),
                finish.gid.unwrap_or(now.gid),
            );
            Change::new(relative, text(now.mode, now.uid, now.gid), to)
        }
        TreeAction::Attributes { .. } => Change::new(relative, DisplayValue::Absent, "attributes"),
        TreeAction::Remove(found) => Change::new(relative, shown(found), DisplayValue::Absent),
    }
}

fn shown(found: &PathContent) -> DisplayValue {
    match found {
        PathContent::Nothing => DisplayValue::Absent,
        other => DisplayValue::from(other.word()),
    }
}

/// Fixes one difference.
pub(super) fn apply(
    desired: &DesiredFile,
    below: &TreeDifference,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if write_access.cancellation().is_cancelled() {
        return Err(StepError::interrupted());
    }
    match &below.act {
        TreeAction::Directory(finish) => land::directory(&below.path, *finish, write_access),
        TreeAction::File {
            address,
            finish,
            old,
        } => {
            super::keep(desired, &below.path, old, write_access)?;
            if let PathContent::Directory(_) = old {
                if !desired.force {
                    let path = below.path.display();
                    return Err(StepError::new(format!(
                        "{path} is a directory: set `force` to remove it"
                    )));
                }
                land::remove(&below.path, write_access)?;
            }
            let mut content = write_access.sources().open(address)?;
            land::file(
                &below.path,
                &mut *content,
                *finish,
                desired.validate.as_ref(),
                write_access,
            )
        }
        TreeAction::Attributes { found, finish } => land::attributes(&below.path, found, *finish),
        TreeAction::Remove(found) => {
            super::keep(desired, &below.path, found, write_access)?;
            land::remove(&below.path, write_access)
        }
    }
}
