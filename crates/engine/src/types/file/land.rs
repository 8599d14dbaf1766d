//! Replacing files, so that other processes see the old or the new content and never a
//! part. This holds even after a power loss, as the new content is on disk before it
//! gets its name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bunraku_files::{StagedFile, replace_link_in};
use rustix::fs::{AtFlags, Gid, Mode, Uid, fchmod, fchown, unlinkat};
use rustix::io::Errno;

use super::desired::Validate;
use super::mode::FileMode;
use super::observed::{Attributes, ObservedFile, PathContent};
use super::place::Place;
use crate::types::exec::{Run, shell};
use crate::{StepError, WriteAccess};

/// Mode, owner and group of a created file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    pub(super) mode: u32,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl Finish {
    /// Returns the attributes of a file or directory: the declared mode and owner, or
    /// else the current ones.
    pub(super) fn wanted(
        mode: Option<&FileMode>,
        observed: &ObservedFile,
        directory: bool,
        now: Option<Attributes>,
    ) -> Self {
        let usual = if directory { 0o755 } else { 0o644 };
        let from = now.map_or(usual, |now| now.mode);
        Self {
            mode: mode.map_or(from, |mode| mode.applied_to(from, directory)),
            uid: observed.uid.or(now.map(|now| now.uid)),
            gid: observed.gid.or(now.map(|now| now.gid)),
        }
    }
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(io::Error) -> StepError {
    let text = format!("cannot {what} {}", path.display());
    move |error| StepError::because(text, error)
}

/// Writes a file beside its place, validates it, and renames it into place.
pub(super) fn file(
    path: &Path,
    content: &mut dyn Read,
    finish: Finish,
    validate: Option<&Validate>,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    let mut fresh = StagedFile::create_in(&place.directory, &place.name)
        .map_err(cannot("create a temporary file next to", path))?;
    pour(content, &mut fresh, write_access).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => StepError::interrupted(),
        _ => cannot("write", path)(error),
    })?;
    fresh
        .set_access((finish.uid, finish.gid), finish.mode)
        .map_err(cannot("set the owner and mode of", path))?;
    fresh.complete().map_err(cannot("write to disk", path))?;
    if let Some(validate) = validate {
        let path = path.with_file_name(fresh.temporary_name());
        check(validate, &path, write_access)?;
    }
    fresh.publish_unsynced().map_err(cannot("replace", path))?;
    write_access.sync_directory_later(path.parent().unwrap_or(Path::new("/")));
    Ok(())
}

/// Copies in pieces, and stops when the run is interrupted: the temporary file is
/// removed, and the old one stays.
fn pour(
    content: &mut dyn Read,
    into: &mut impl Write,
    write_access: &WriteAccess<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if write_access.cancellation().is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        into.write_all(&buffer[..count])?;
    }
}

fn set_owner(file: &File, finish: Finish) -> io::Result<()> {
    if finish.uid.is_none() && finish.gid.is_none() {
        return Ok(());
    }
    let (uid, gid) = (finish.uid.map(Uid::from_raw), finish.gid.map(Gid::from_raw));
    Ok(fchown(file, uid, gid)?)
}

fn check(
    validate: &Validate,
    temporary: &Path,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let command = validate
        .command
        .replace(&validate.placeholder, &quoted(temporary));
    let done = Run::new(shell(command)).run(write_access)?;
    if done.succeeded() {
        return Ok(());
    }
    let said = format!("{}{}", done.stderr_text(), done.stdout_text());
    let said = said.lines().next().unwrap_or_default().to_owned();
    Err(StepError::new(format!(
        "`{}` rejected the new content ({}): {said}",
        validate.command,
        done.ending()
    )))
}

/// Quotes a path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

/// Creates a link. It may replace another link or a file.
pub(super) fn link(
    path: &Path,
    target: &Path,
    finish: Finish,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    replace_link_in(
        &place.directory,
        &place.name,
        target,
        (finish.uid, finish.gid),
    )
    .map_err(cannot("link", path))?;
    write_access.sync_directory_later(path.parent().unwrap_or(Path::new("/")));
    Ok(())
}

/// Creates a directory with its mode and owner. An existing one stays.
pub(super) fn directory(
    path: &Path,
    finish: Finish,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    match rustix::fs::mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(error) => return Err(cannot("make", path)(error.into())),
    }
    let made = File::from(
        place
            .open()
            .map_err(io::Error::from)
            .map_err(cannot("open", path))?,
    );
    set_owner(&made, finish).map_err(cannot("set the owner of", path))?;
    let mode = Mode::from_raw_mode(finish.mode);
    fchmod(&made, mode)
        .map_err(io::Error::from)
        .map_err(cannot("set the mode of", path))?;
    write_access.sync_directory_later(path.parent().unwrap_or(Path::new("/")));
    Ok(())
}

/// Creates every missing directory above a path.
pub(super) fn directories_above(
    path: &Path,
    finish: Finish,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for above in path.ancestors().skip(1) {
        match super::place::directory(above) {
            Ok(_) => break,
            Err(super::place::PlaceError::Missing(_)) => missing.push(above.to_owned()),
            Err(error) => return Err(StepError::because("the path is not usable", error)),
        }
    }
    missing
        .iter()
        .rev()
        .try_for_each(|above| directory(above, finish, write_access))
}

/// Sets mode and owner of an existing file.
///
/// A file with several names may be an attack: in a directory that is not owned by
/// root, another name may be `/etc/shadow`. So it is refused there.
pub(super) fn attributes(
    path: &Path,
    found: &PathContent,
    finish: Finish,
) -> Result<(), StepError> {
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    if let PathContent::Link(_) = found {
        let (uid, gid) = (finish.uid.map(Uid::from_raw), finish.gid.map(Gid::from_raw));
        let owned = rustix::fs::chownat(
            &place.directory,
            &place.name,
            uid,
            gid,
            AtFlags::SYMLINK_NOFOLLOW,
        );
        return owned
            .map_err(io::Error::from)
            .map_err(cannot("set the owner of", path));
    }
    let file = File::from(
        place
            .open()
            .map_err(io::Error::from)
            .map_err(cannot("open", path))?,
    );
    let stat = rustix::fs::fstat(&file)
        .map_err(io::Error::from)
        .map_err(cannot("inspect", path))?;
    let now = Attributes::of(&stat);
    if now.names > 1 && !matches!(found, PathContent::Directory(_)) {
        let above = rustix::fs::fstat(&place.directory)
            .map_err(io::Error::from)
            .map_err(cannot("inspect", path))?;
        if above.st_uid != 0 && above.st_uid != rustix::process::geteuid().as_raw() {
            return Err(StepError::new(format!(
                "{} has hard links and is in a directory of user {}: its owner and mode are not changed",
                path.display(),
                above.st_uid
            )));
        }
    }
    let changed = |wanted: Option<u32>, now: u32| wanted.filter(|wanted| *wanted != now);
    let owner = Finish {
        uid: changed(finish.uid, now.uid),
        gid: changed(finish.gid, now.gid),
        ..finish
    };
    set_owner(&file, owner).map_err(cannot("set the owner of", path))?;
    // Even when the mode was right: changing the owner may have cleared bits.
    let mode = Mode::from_raw_mode(finish.mode);
    fchmod(&file, mode)
        .map_err(io::Error::from)
        .map_err(cannot("set the mode of", path))
}

/// Removes whatever is at the path, and a directory with its content.
pub(crate) fn remove(path: &Path, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let place =
        Place::of(path).map_err(|error| StepError::because("the path is not usable", error))?;
    match unlinkat(&place.directory, &place.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::ISDIR | Errno::PERM) => {
            // Through the open directory, so that the path cannot be swapped. The
            // standard library follows no link on the way down.
            use std::os::fd::AsRawFd;
            let mut inside =
                PathBuf::from(format!("/proc/self/fd/{}", place.directory.as_raw_fd()));
            inside.push(&place.name);
            std::fs::remove_dir_all(inside).map_err(cannot("remove", path))?;
        }
        Err(error) => return Err(cannot("remove", path)(error.into())),
    }
    write_access.sync_directory_later(path.parent().unwrap_or(Path::new("/")));
    Ok(())
}
