//! Observing the current state, and comparing it with the declaration.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, fstat, readlinkat};

use super::content::{self, Comparison};
use super::desired::{Content, DesiredFile, Ensure};
use super::place::{self, Place, PlaceError};
use super::tree::{self, TreeDifference};
use crate::{ReadAccess, StepError};

/// The state of a path, and its differences.
pub(crate) struct ObservedFile {
    /// The actual path: the path itself, or the target of the link at the path.
    pub(super) path: PathBuf,
    pub(super) found: PathContent,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) content: Option<Comparison>,
    pub(super) below: Vec<TreeDifference>,
    pub(super) parents_missing: bool,
}

/// The object at a path.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PathContent {
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

impl PathContent {
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
pub(super) fn observe(
    desired: &DesiredFile,
    access: &ReadAccess<'_>,
) -> Result<ObservedFile, StepError> {
    let mut path = access.path(&desired.path);
    let (mut found, mut file, mut parents_missing) = find(&path, access, desired)?;
    if let (true, PathContent::Link(target)) = (desired.follow, &found) {
        path = path.parent().unwrap_or(Path::new("/")).join(target);
        (found, file, parents_missing) = find(&path, access, desired)?;
    }
    let mut observed = ObservedFile {
        uid: owner(desired.owner.as_deref(), access)?,
        gid: group(desired.group.as_deref(), access)?,
        content: None,
        below: Vec::new(),
        parents_missing,
        found,
        path,
    };
    let kind = super::desired_kind(desired, &observed.found);
    refuse_directory(desired, &observed, kind)?;
    if kind == super::Kind::File && !matches!(desired.content, Content::Unmanaged) {
        let (old, size) = match observed.found {
            PathContent::File(attributes) => (file.map(File::from), attributes.size),
            _ => (None, 0),
        };
        if desired.replace || old.is_none() {
            observed.content = Some(content::compare(desired, old, size, access)?);
        }
    }
    if let (super::Kind::Directory, Some(tree)) = (kind, &desired.tree) {
        observed.below = tree::look(desired, tree, &observed, access)?;
    }
    Ok(observed)
}

fn refuse_directory(
    desired: &DesiredFile,
    observed: &ObservedFile,
    kind: super::Kind,
) -> Result<(), StepError> {
    let stays = matches!(kind, super::Kind::Directory | super::Kind::Unmanaged);
    if matches!(observed.found, PathContent::Directory(_)) && !stays && !desired.force {
        let path = observed.path.display();
        return Err(StepError::new(format!(
            "{path} is a directory: set `force` to remove it"
        )));
    }
    Ok(())
}

/// Returns the object at a path, and the open file if it could be opened at once.
fn find(
    path: &Path,
    access: &ReadAccess<'_>,
    desired: &DesiredFile,
) -> Result<(PathContent, Option<OwnedFd>, bool), StepError> {
    let cannot = |error: rustix::io::Errno| {
        StepError::because(
            format!("cannot inspect {}", path.display()),
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
            if desired.makedirs
                || desired.ensure == Ensure::Absent
                || !desired.create
                || access.may_appear()
            {
                return Ok((PathContent::Nothing, None, true));
            }
            return Err(StepError::new(format!(
                "the directory {} does not exist",
                missing.display()
            )));
        }
        Err(PlaceError::NotADirectory(_)) if desired.ensure == Ensure::Absent => {
            return Ok((PathContent::Nothing, None, true));
        }
        Err(error) => return Err(StepError::because("the path is not usable", error)),
    };
    let Some(stat) = place.stat().map_err(cannot)? else {
        return Ok((PathContent::Nothing, None, false));
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
        FileType::RegularFile if !matches!(desired.content, Content::Unmanaged) => {
            Some(place.open().map_err(cannot)?)
        }
        _ => None,
    };
    Ok((found(&stat, link), file, false))
}

pub(super) fn found(stat: &Stat, link: Option<PathBuf>) -> PathContent {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => PathContent::File(Attributes::of(stat)),
        FileType::Directory => PathContent::Directory(Attributes::of(stat)),
        FileType::Symlink => PathContent::Link(link.unwrap_or_default()),
        FileType::Fifo => PathContent::Other("pipe"),
        FileType::Socket => PathContent::Other("socket"),
        _ => PathContent::Other("device"),
    }
}

/// Returns the ID of a user, unless the run may still create the user.
pub(super) fn owner(name: Option<&str>, access: &ReadAccess<'_>) -> Result<Option<u32>, StepError> {
    let Some(name) = name else {
        return Ok(None);
    };
    match access.user_id(name) {
        Some(uid) => Ok(Some(uid)),
        None if access.may_appear() => Ok(None),
        None => Err(StepError::new(format!("no user `{name}`"))),
    }
}

pub(super) fn group(name: Option<&str>, access: &ReadAccess<'_>) -> Result<Option<u32>, StepError> {
    let Some(name) = name else {
        return Ok(None);
    };
    match access.group_id(name) {
        Some(gid) => Ok(Some(gid)),
        None if access.may_appear() => Ok(None),
        None => Err(StepError::new(format!("no group `{name}`"))),
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
