//! Everything below a directory: copied from a source, owned, purged.
//!
//! Paths that another resource manages are skipped: its own declaration decides.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bunraku_model::Glob;
use rustix::fs::{Dir, FileType};

use super::land::{self, Finish};
use super::look::{Attributes, Found, Seen, found};
use super::place::Place;
use super::wish::{Content, Tree, Wish};
use crate::{Change, Hands, Shown, Sight, SourceEntry, StepError};

/// One entry below a directory that differs.
pub(crate) struct Below {
    pub(super) path: PathBuf,
    pub(super) act: Act,
}

pub(super) enum Act {
    Directory(Finish),
    /// A file to write from this address, in place of the found object.
    File {
        address: String,
        finish: Finish,
        old: Found,
    },
    Attributes {
        found: Found,
        finish: Finish,
    },
    Remove(Found),
}

/// Observes the whole tree. Only paths are held in memory, no contents.
pub(super) fn look(
    wish: &Wish,
    tree: &Tree,
    seen: &Seen,
    sight: &Sight<'_>,
) -> Result<Vec<Below>, StepError> {
    let source = source_entries(wish, tree, sight)?;
    let mut present = BTreeMap::new();
    if let Found::Directory(_) = seen.found {
        walk(&seen.path, tree, &mut present, sight)?;
    }
    let mut below = Vec::new();
    for (relative, entry) in &source {
        let path = seen.path.join(relative);
        if !sight.is_managed(&path) {
            below.extend(from_source(
                wish,
                seen,
                &path,
                entry,
                present.get(&path),
                sight,
            )?);
        }
    }
    for (path, found) in &present {
        let relative = path.strip_prefix(&seen.path).unwrap_or(path);
        if source.contains_key(relative) || sight.is_managed(path) {
            continue;
        }
        if tree.purge {
            let purgeable = tree.purge_directories || !matches!(found, Found::Directory(_));
            let inside_removed = below.last().is_some_and(|last: &Below| {
                matches!(last.act, Act::Remove(_)) && path.starts_with(&last.path)
            });
            if purgeable && !inside_removed && !sight.manages_below(path) {
                below.push(Below {
                    path: path.clone(),
                    act: Act::Remove(found.clone()),
                });
            }
        } else if tree.recurse {
            below.extend(owned(wish, seen, path, found));
        }
    }
    Ok(below)
}

/// Returns the entries of a source directory by their relative paths.
fn source_entries(
    wish: &Wish,
    tree: &Tree,
    sight: &Sight<'_>,
) -> Result<BTreeMap<PathBuf, SourceEntry>, StepError> {
    let Content::Source { addresses, .. } = &wish.content else {
        return Ok(BTreeMap::new());
    };
    let mut last = StepError::new("there is no source");
    for address in addresses {
        match sight.sources().list(address) {
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
    present: &mut BTreeMap<PathBuf, Found>,
    sight: &Sight<'_>,
) -> Result<(), StepError> {
    let mut open = vec![(top.to_owned(), 1)];
    while let Some((directory, depth)) = open.pop() {
        if sight.cancellation().is_cancelled() {
            return Err(StepError::interrupted());
        }
        let cannot = |error: rustix::io::Errno| {
            StepError::because(
                format!("cannot list {}", directory.display()),
                std::io::Error::from(error),
            )
        };
        let handle = super::place::directory(&directory);
        let handle =
            handle.map_err(|error| StepError::because("the path cannot be used", error))?;
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
    wish: &Wish,
    seen: &Seen,
    path: &Path,
    entry: &SourceEntry,
    there: Option<&Found>,
    sight: &Sight<'_>,
) -> Result<Option<Below>, StepError> {
    let below = |act| {
        Some(Below {
            path: path.to_owned(),
            act,
        })
    };
    if entry.directory {
        return Ok(match there {
            Some(found @ Found::Directory(_)) => owned(wish, seen, path, found),
            _ => below(Act::Directory(finish(wish, seen, true, None))),
        });
    }
    let old = there.cloned().unwrap_or(Found::Nothing);
    if let (Found::File(attributes), false) = (&old, wish.replace) {
        return Ok(owned(wish, seen, path, &Found::File(*attributes)));
    }
    if let Found::File(attributes) = &old {
        if same(path, &entry.address, sight)? {
            return Ok(owned(wish, seen, path, &Found::File(*attributes)));
        }
        let finish = finish(wish, seen, false, Some(*attributes));
        return Ok(below(Act::File {
            address: entry.address.clone(),
            finish,
            old,
        }));
    }
    Ok(below(Act::File {
        address: entry.address.clone(),
        finish: finish(wish, seen, false, None),
        old,
    }))
}

fn same(path: &Path, address: &str, sight: &Sight<'_>) -> Result<bool, StepError> {
    let cannot = |error| StepError::because(format!("cannot compare {}", path.display()), error);
    let place =
        Place::of(path).map_err(|error| StepError::because("the path cannot be used", error))?;
    let mut old = std::fs::File::from(place.open().map_err(std::io::Error::from).map_err(cannot)?);
    let mut new = sight.sources().open(address)?;
    super::content::same_streams(&mut old, &mut *new).map_err(cannot)
}

/// Returns the desired attributes of an entry below, if they differ.
fn owned(wish: &Wish, seen: &Seen, path: &Path, found: &Found) -> Option<Below> {
    let (now, directory) = match found {
        Found::File(now) => (*now, false),
        Found::Directory(now) => (*now, true),
        Found::Nothing | Found::Link(_) | Found::Other(_) => return None,
    };
    let finish = finish(wish, seen, directory, Some(now));
    let differs = finish.mode != now.mode
        || finish.uid.is_some_and(|uid| uid != now.uid)
        || finish.gid.is_some_and(|gid| gid != now.gid);
    differs.then(|| Below {
        path: path.to_owned(),
        act: Act::Attributes {
            found: found.clone(),
            finish,
        },
    })
}

fn finish(wish: &Wish, seen: &Seen, directory: bool, now: Option<Attributes>) -> Finish {
    let mode = match directory {
        true => &wish.directory_mode,
        false => &wish.file_mode,
    };
    Finish::wanted(mode.as_ref(), seen, directory, now)
}

/// Returns the change to report for a difference below.
pub(super) fn change(seen: &Seen, below: &Below) -> Change {
    let relative = below
        .path
        .strip_prefix(&seen.path)
        .unwrap_or(&below.path)
        .to_string_lossy()
        .into_owned();
    match &below.act {
        Act::Directory(_) => Change::new(relative, Shown::Absent, "directory"),
        Act::File { old, .. } => Change::new(relative, shown(old), "content of the source"),
        Act::Attributes {
            found: Found::File(now) | Found::Directory(now),
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
        Act::Attributes { .. } => Change::new(relative, Shown::Absent, "attributes"),
        Act::Remove(found) => Change::new(relative, shown(found), Shown::Absent),
    }
}

fn shown(found: &Found) -> Shown {
    match found {
        Found::Nothing => Shown::Absent,
        other => Shown::from(other.word()),
    }
}

/// Fixes one difference.
pub(super) fn apply(wish: &Wish, below: &Below, hands: &Hands<'_>) -> Result<(), StepError> {
    if hands.cancellation().is_cancelled() {
        return Err(StepError::interrupted());
    }
    match &below.act {
        Act::Directory(finish) => land::directory(&below.path, *finish, hands),
        Act::File {
            address,
            finish,
            old,
        } => {
            keep(wish, &below.path, old, hands)?;
            if let Found::Directory(_) = old {
                if !wish.force {
                    let path = below.path.display();
                    return Err(StepError::new(format!(
                        "{path} is a directory: it is removed only with `force`"
                    )));
                }
                land::remove(&below.path, hands)?;
            }
            let mut content = hands.sources().open(address)?;
            land::file(
                &below.path,
                &mut *content,
                *finish,
                wish.validate.as_ref(),
                hands,
            )
        }
        Act::Attributes { found, finish } => land::attributes(&below.path, found, *finish),
        Act::Remove(found) => {
            keep(wish, &below.path, found, hands)?;
            land::remove(&below.path, hands)
        }
    }
}

fn keep(wish: &Wish, path: &Path, found: &Found, hands: &Hands<'_>) -> Result<(), StepError> {
    match found {
        Found::File(attributes) if wish.backup => super::backup::keep(path, *attributes, hands),
        _ => Ok(()),
    }
}
