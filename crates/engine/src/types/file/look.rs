//! Observing the current state, and comparing it with the declaration.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, fstat, readlinkat};

use super::content::{self, Comparison};
use super::place::{self, Place, PlaceError};
use super::tree::{self, Below};
use super::wish::{Content, Ensure, Wish};
use crate::{Sight, StepError};

/// The state of a path, and its differences.
pub(crate) struct Seen {
    /// The actual path: the path itself, or the target of the link at the path.
    pub(super) path: PathBuf,
    pub(super) found: Found,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) content: Option<Comparison>,
    pub(super) below: Vec<Below>,
    pub(super) parents_missing: bool,
}

/// The object at a path.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Found {
    Nothing,
    File(Attributes),
    Directory(Attributes),
    Link(PathBuf),
    /// A device, a pipe, a socket.
    Other(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) names: u64,
    pub(super) size: u64,
}

impl Attributes {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            #[allow(clippy::unnecessary_cast, reason = "narrower on other machines")]
            names: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }
}

impl Found {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "absent",
            Self::File(_) => "file",
            Self::Directory(_) => "directory",
            Self::Link(_) => "link",
            Self::Other(what) => what,
        }
    }
}

/// Observes, and refuses a declaration that could not be applied.
pub(super) fn observe(wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
    let mut path = sight.path(&wish.path);
    let (mut found, mut file, mut parents_missing) = find(&path, sight, wish)?;
    if let (true, Found::Link(target)) = (wish.follow, &found) {
        path = path.parent().unwrap_or(Path::new("/")).join(target);
        (found, file, parents_missing) = find(&path, sight, wish)?;
    }
    let mut seen = Seen {
        uid: owner(wish.owner.as_deref(), sight)?,
        gid: group(wish.group.as_deref(), sight)?,
        content: None,
        below: Vec::new(),
        parents_missing,
        found,
        path,
    };
    let kind = super::kind_wished(wish, &seen.found);
    refuse_directory(wish, &seen, kind)?;
    if kind == super::Kind::File && !matches!(wish.content, Content::Unmanaged) {
        let (old, size) = match seen.found {
            Found::File(attributes) => (file.map(File::from), attributes.size),
            _ => (None, 0),
        };
        if wish.replace || old.is_none() {
            seen.content = Some(content::compare(wish, old, size, sight)?);
        }
    }
    if let (super::Kind::Directory, Some(tree)) = (kind, &wish.tree) {
        seen.below = tree::look(wish, tree, &seen, sight)?;
    }
    Ok(seen)
}

fn refuse_directory(wish: &Wish, seen: &Seen, kind: super::Kind) -> Result<(), StepError> {
    let stays = matches!(kind, super::Kind::Directory | super::Kind::Unmanaged);
    if matches!(seen.found, Found::Directory(_)) && !stays && !wish.force {
        let path = seen.path.display();
        return Err(StepError::new(format!(
            "{path} is a directory: it is removed only with `force`"
        )));
    }
    Ok(())
}

/// Returns the object at a path, and the open file if it could be opened at once.
fn find(
    path: &Path,
    sight: &Sight<'_>,
    wish: &Wish,
) -> Result<(Found, Option<OwnedFd>, bool), StepError> {
    let cannot = |error: rustix::io::Errno| {
        StepError::because(
            format!("cannot look at {}", path.display()),
            io::Error::from(error),
        )
    };
    match place::open_plain(path) {
        Some(Ok(file)) => {
            let stat = fstat(&file).map_err(cannot)?;
            return Ok((found(&stat, None), Some(file), false));
        }
        // It remains to find out if the directory above exists.
        Some(Err(rustix::io::Errno::NOENT)) | None => {}
        Some(Err(rustix::io::Errno::ACCESS)) => {}
        Some(Err(error)) => return Err(cannot(error)),
    }
    let place = match Place::of(path) {
        Ok(place) => place,
        Err(PlaceError::Missing(missing)) => {
            if wish.makedirs || wish.ensure == Ensure::Absent || !wish.create || sight.may_appear()
            {
                return Ok((Found::Nothing, None, true));
            }
            return Err(StepError::new(format!(
                "the directory {} does not exist",
                missing.display()
            )));
        }
        Err(PlaceError::NotADirectory(_)) if wish.ensure == Ensure::Absent => {
            return Ok((Found::Nothing, None, true));
        }
        Err(error) => return Err(StepError::because("the path cannot be used", error)),
    };
    let Some(stat) = place.stat().map_err(cannot)? else {
        return Ok((Found::Nothing, None, false));
    };
    let link = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            Some(readlinkat(&place.directory, &place.name, Vec::new()).map_err(cannot)?)
        }
        _ => None,
    };
    let link = link.map(|link| {
        PathBuf::from(
            <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(link.into_bytes()),
        )
    });
    let file = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if !matches!(wish.content, Content::Unmanaged) => {
            Some(place.open().map_err(cannot)?)
        }
        _ => None,
    };
    Ok((found(&stat, link), file, false))
}

pub(super) fn found(stat: &Stat, link: Option<PathBuf>) -> Found {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::File(Attributes::of(stat)),
        FileType::Directory => Found::Directory(Attributes::of(stat)),
        FileType::Symlink => Found::Link(link.unwrap_or_default()),
        FileType::Fifo => Found::Other("pipe"),
        FileType::Socket => Found::Other("socket"),
        _ => Found::Other("device"),
    }
}

/// Returns the ID of a user, unless the run may still create the user.
pub(super) fn owner(name: Option<&str>, sight: &Sight<'_>) -> Result<Option<u32>, StepError> {
    let Some(name) = name else {
        return Ok(None);
    };
    match sight.user_id(name) {
        Some(uid) => Ok(Some(uid)),
        None if sight.may_appear() => Ok(None),
        None => Err(StepError::new(format!("there is no user `{name}`"))),
    }
}

pub(super) fn group(name: Option<&str>, sight: &Sight<'_>) -> Result<Option<u32>, StepError> {
    let Some(name) = name else {
        return Ok(None);
    };
    match sight.group_id(name) {
        Some(gid) => Ok(Some(gid)),
        None if sight.may_appear() => Ok(None),
        None => Err(StepError::new(format!("there is no group `{name}`"))),
    }
}

/// Reads a file that has to fit in memory.
pub(super) fn read_whole(
    file: &mut impl Read,
    limit: u64,
    what: &str,
) -> Result<Vec<u8>, StepError> {
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| StepError::because(format!("cannot read {what}"), error))?;
    if bytes.len() as u64 > limit {
        return Err(StepError::new(format!(
            "{what} is larger than {limit} bytes"
        )));
    }
    Ok(bytes)
}
