//! Opening a file in a user's home without following links.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::types::accounts::Account;
use crate::types::config_file::{self, NewFile};
use crate::{ReadAccess, StepError, WriteAccess};

/// The start directory, which the user cannot replace, and the rest of the path.
struct Place {
    start: PathBuf,
    directory: PathBuf,
    name: String,
    /// True below the user's home: the user owns directories that are created there.
    own: bool,
}

fn place(account: &Account, target: Option<&str>, access: &ReadAccess<'_>) -> Place {
    let target = target.unwrap_or(".ssh/authorized_keys");
    let target = target
        .replace("%h", &account.home)
        .replace("%u", &account.name);
    let home = Path::new(&account.home);
    let full = home.join(&target);
    let (start, rest, own) = match full.strip_prefix(home) {
        Ok(rest) => (access.path(home), rest.to_owned(), true),
        Err(_) => (
            access.path("/"),
            full.strip_prefix("/").unwrap_or(&full).to_owned(),
            false,
        ),
    };
    Place {
        start,
        directory: rest.parent().unwrap_or(Path::new("")).to_owned(),
        name: rest
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        own,
    }
}

impl Place {
    /// Opens the directory. A link below the start is an error.
    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = rustix::fs::open(&self.start, flags, Mode::empty())?;
        if self.directory.as_os_str().is_empty() {
            return Ok(start);
        }
        let resolve = if self.own {
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
        } else {
            ResolveFlags::BENEATH
        };
        Ok(rustix::fs::openat2(
            &start,
            &self.directory,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }

    /// Creates the missing directories one by one, owned by the user.
    fn make(&self, account: &Account) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = OwnedFd::from(fs::File::open(&self.start)?);
        for part in self.directory.components() {
            match rustix::fs::mkdirat(&here, part.as_os_str(), Mode::from_raw_mode(0o700)) {
                Ok(()) if self.own => {
                    let (uid, gid) = (account.uid, account.gid);
                    let made = rustix::fs::openat(&here, part.as_os_str(), flags, Mode::empty())?;
                    rustix::fs::fchown(
                        &made,
                        Some(rustix::fs::Uid::from_raw(uid)),
                        Some(rustix::fs::Gid::from_raw(gid)),
                    )?;
                }
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            here = rustix::fs::openat(&here, part.as_os_str(), flags, Mode::empty())?;
        }
        Ok(here)
    }

    fn shown(&self) -> String {
        self.start
            .join(&self.directory)
            .join(&self.name)
            .display()
            .to_string()
    }
}

pub(super) fn read(
    account: &Account,
    target: Option<&str>,
    access: &ReadAccess<'_>,
) -> Result<Vec<u8>, StepError> {
    let place = place(account, target, access);
    match place
        .open()
        .and_then(|directory| config_file::read_in(directory, &place.name))
    {
        Ok(content) => Ok(content.unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed("read", &place, error)),
    }
}

pub(super) fn edit(
    account: &Account,
    target: Option<&str>,
    write_access: &WriteAccess<'_>,
    change: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Result<(), StepError> {
    let place = place(account, target, write_access);
    config_file::alone(|| {
        if !place.start.is_dir() {
            let message = format!(
                "user `{}` has no home {}",
                account.name,
                place.start.display()
            );
            return Err(StepError::new(message));
        }
        let before = read(account, target, write_access)?;
        let after = change(&before);
        let new_file = NewFile {
            mode: 0o600,
            owner: Some((account.uid, account.gid)),
        };
        (place.make(account))
            .and_then(|directory| config_file::replace_in(directory, &place.name, &after, new_file))
            .map_err(|error| failed("write", &place, error))
    })
}

fn failed(what: &str, place: &Place, error: io::Error) -> StepError {
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        let message = format!(
            "{} goes through a symbolic link, which is not followed",
            place.shown()
        );
        return StepError::new(message);
    }
    StepError::because(format!("cannot {what} {}", place.shown()), error)
}
