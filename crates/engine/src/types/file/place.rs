//! Resolving a path safely.
//!
//! The engine runs as root and works in directories that other users own. A symbolic
//! link in the middle of a path is followed only if root or the engine's own user
//! created it. A link of any other user is an error, as they could point it at `/etc`.
//! The last component is never followed. All work is then done relative to the opened
//! directory, so that a swap afterwards changes nothing.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

/// The maximum number of links on one path, the same as the kernel's.
const MOST_LINKS: usize = 40;

/// The reason why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{} is a symbolic link owned by user {owner}; it is not followed for security", .link.display())]
    Hostile { link: PathBuf, owner: u32 },
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} has too many symbolic links", .0.display())]
    TooManyLinks(PathBuf),
    #[error("`{}` is not an absolute path of a file", .0.display())]
    NotAPath(PathBuf),
    #[error("cannot reach {}", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// An open directory, and a name in it.
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl Place {
    /// Opens the directory that contains `path`.
    pub(crate) fn of(path: &Path) -> Result<Self, PlaceError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(PlaceError::NotAPath(path.to_owned()));
        };
        Ok(Self {
            directory: directory(parent)?,
            name: name.to_owned(),
        })
    }

    /// Returns the metadata. The last component is not followed.
    pub(crate) fn stat(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file for reading, unless it is a link.
    pub(crate) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(&self.directory, &self.name, flags, Mode::empty())
    }
}

/// Opens a path in one call, unless it contains a link.
fn open_without_links(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS;
    openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
}

/// Opens a directory to work in.
pub(crate) fn directory(path: &Path) -> Result<OwnedFd, PlaceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open_without_links(path, flags) {
        Ok(directory) => Ok(directory),
        Err(Errno::NOENT) => Err(PlaceError::Missing(path.to_owned())),
        // The path has a link, or the kernel lacks the call: continue step by step.
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::NOTDIR) => walk(path),
        Err(error) => Err(PlaceError::Io {
            path: path.to_owned(),
            source: error.into(),
        }),
    }
}

/// Opens a directory, and creates every missing one on the way, readable by everyone.
pub(crate) fn created_directory(path: &Path) -> Result<OwnedFd, PlaceError> {
    match directory(path) {
        Err(PlaceError::Missing(_)) => {}
        other => return other,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PlaceError::NotAPath(path.to_owned()));
    };
    let parent = created_directory(parent)?;
    let failed = |error: Errno| PlaceError::Io {
        path: path.to_owned(),
        source: error.into(),
    };
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }
    // A link that another user creates now is not followed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&parent, name, flags, Mode::empty()).map_err(failed)
}

/// Returns the path of an open file for programs that this process starts as its own
/// user. It leads to that file, even if the file's name changes.
pub(crate) fn path_of(file: impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    let number = file.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()))
}

/// Opens a path for reading in one call if it contains no link. `None` says nothing
/// about the path: resolve it step by step.
pub(crate) fn open_plain(path: &Path) -> Option<Result<OwnedFd, Errno>> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open_without_links(path, flags) {
        Ok(file) => Some(Ok(file)),
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM | Errno::NOTDIR | Errno::NXIO) => None,
        Err(error) => Some(Err(error)),
    }
}

fn walk(path: &Path) -> Result<OwnedFd, PlaceError> {
    let failed = |error: Errno| PlaceError::Io {
        path: path.to_owned(),
        source: error.into(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut links = 0;
    // The directories from the root to here, with their names.
    let root = openat(rustix::fs::CWD, "/", flags, Mode::empty()).map_err(failed)?;
    let mut stack: Vec<(OwnedFd, PathBuf)> = vec![(root, PathBuf::from("/"))];
    let mut ahead: Vec<OsString> = parts(path);
    while let Some(part) = ahead.pop() {
        if part == OsStr::new("..") {
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        let (here, shown) = stack.last().expect("the root stays");
        let shown = shown.join(&part);
        match openat(here, &part, flags, Mode::empty()) {
            Ok(next) => stack.push((next, shown)),
            Err(Errno::NOENT) => return Err(PlaceError::Missing(shown)),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(PlaceError::TooManyLinks(path.to_owned()));
                }
                let target = trusted_link(here, &part, &shown)?;
                if target.is_absolute() {
                    stack.truncate(1);
                }
                ahead.extend(parts(&target));
            }
            Err(error) => {
                return Err(PlaceError::Io {
                    path: shown,
                    source: error.into(),
                });
            }
        }
    }
    let (directory, _) = stack.pop().expect("the root stays");
    Ok(directory)
}

/// Returns the target of a link, if it may be followed.
fn trusted_link(here: impl AsFd, part: &OsStr, shown: &Path) -> Result<PathBuf, PlaceError> {
    let failed = |error: Errno| PlaceError::Io {
        path: shown.to_owned(),
        source: error.into(),
    };
    let stat = statat(&here, part, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Err(PlaceError::NotADirectory(shown.to_owned()));
    }
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(PlaceError::Hostile {
            link: shown.to_owned(),
            owner: stat.st_uid,
        });
    }
    let target = readlinkat(&here, part, Vec::new()).map_err(failed)?;
    Ok(PathBuf::from(
        <OsString as std::os::unix::ffi::OsStringExt>::from_vec(target.into_bytes()),
    ))
}

/// Returns the components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let normal = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<OsString> = normal.collect();
    parts.reverse();
    parts
}
