//! Unpacking, so that nothing lands outside of the directory.
//!
//! The archive is first hashed into a private file: nothing of an archive with the
//! wrong checksum is ever written. Names are checked, and the kernel opens each one
//! strictly beneath the directory. So neither `..`, nor a link in the archive, nor one
//! that another user created leads out of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use bunraku_files::{StagedFile, replace_link_in};
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::DesiredArchive;
use super::checksum::{Checksum, Hashing};
use super::format::Format;
use super::record::{Entry, Record};
use crate::types::file::place;
use crate::types::{accounts, exec::Run, tool};
use crate::{StepError, WriteAccess};

pub(super) fn unpack(
    desired: &DesiredArchive,
    write_access: &WriteAccess<'_>,
) -> Result<Record, StepError> {
    let failed =
        |error: io::Error| StepError::because(format!("cannot unpack {}", desired.source), error);
    let work = write_access
        .state_directory()
        .join("unpacking")
        .join(uuid::Uuid::new_v4().simple().to_string());
    std::fs::create_dir_all(&work).map_err(failed)?;
    let made = fetch(desired, &work, write_access).and_then(|checksum| {
        let target = Target::open(desired, write_access)?;
        let entries = match desired.format {
            Format::Tar(program) => tar(desired, &work, program, target, write_access)?,
            Format::Zip => zip(&work, target).map_err(failed)?,
        };
        Ok(Record { checksum, entries })
    });
    let _ = std::fs::remove_dir_all(&work);
    made
}

/// Copies the archive to a place where no other user can change it, and checks it.
fn fetch(
    desired: &DesiredArchive,
    work: &Path,
    write_access: &WriteAccess<'_>,
) -> Result<String, StepError> {
    let failed =
        |error: io::Error| StepError::because(format!("cannot read {}", desired.source), error);
    let mut reader = Hashing::new(
        write_access.sources().open(&desired.source)?,
        desired.checksum.as_ref(),
    );
    let mut copy = File::create(work.join("archive")).map_err(failed)?;
    io::copy(&mut reader, &mut copy).map_err(failed)?;
    let checksum = reader.finish().map_err(failed)?;
    match desired.checksum.as_ref().map(Checksum::text) {
        Some(wanted) if wanted != checksum => Err(StepError::new(format!(
            "{} has the checksum {checksum}, not {wanted}",
            desired.source
        ))),
        _ => Ok(checksum),
    }
}

fn tar(
    desired: &DesiredArchive,
    work: &Path,
    program: Option<&str>,
    target: Target,
    write_access: &WriteAccess<'_>,
) -> Result<Vec<Entry>, StepError> {
    let failed =
        |error: io::Error| StepError::because(format!("cannot unpack {}", desired.source), error);
    let mut archive = work.join("archive");
    if let Some(program) = program {
        let plain = work.join("plain");
        decompress(program, &archive, &plain, desired.largest, write_access)?;
        archive = plain;
    }
    from_tar(File::open(archive).map_err(failed)?, target).map_err(failed)
}

/// Decompresses with the system's program into a plain file, no larger than allowed.
fn decompress(
    program: &str,
    from: &Path,
    to: &Path,
    largest: u64,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if !tool::exists(program) {
        return Err(StepError::new(format!("`{program}` is not installed")));
    }
    // `head` stops reading at the limit, which ends the program before the disk is full.
    let script = "\"$1\" -dc <\"$2\" | head -c \"$4\" >\"$3\"";
    let limit = largest.saturating_add(1).to_string();
    let words = [
        "/bin/sh".into(),
        "-c".into(),
        script.into(),
        "sh".into(),
        program.into(),
        from.as_os_str().to_owned(),
        to.as_os_str().to_owned(),
        limit.into(),
    ];
    let done = Run::new(words).quiet().run(write_access)?;
    let size = std::fs::metadata(to).map_or(0, |metadata| metadata.len());
    if size > largest {
        return Err(StepError::new(format!(
            "it unpacks to more than {largest} bytes (`max_size`)"
        )));
    }
    let said = done.stderr_text();
    if !done.succeeded() || !said.trim().is_empty() {
        return Err(StepError::new(format!(
            "{program} failed: {}",
            said.lines().last().unwrap_or("no output")
        )));
    }
    Ok(())
}

fn from_tar(file: File, mut target: Target) -> io::Result<Vec<Entry>> {
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        match entry.header().entry_type() {
            tar::EntryType::Directory => target.directory(&name, mode)?,
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                target.file(&name, mode, &mut entry)?;
            }
            tar::EntryType::Symlink => {
                let to = entry
                    .link_name()?
                    .map(|name| name.into_owned())
                    .unwrap_or_default();
                target.link(&name, &to)?;
            }
            tar::EntryType::Link => {
                let to = entry
                    .link_name()?
                    .map(|name| name.into_owned())
                    .unwrap_or_default();
                target.copy(&to, &name, mode)?;
            }
            tar::EntryType::XGlobalHeader => {}
            // Devices and pipes are not content.
            _ => {
                return Err(bad(&name, "is of an unsupported type"));
            }
        }
    }
    Ok(target.finish())
}

fn zip(work: &Path, mut target: Target) -> io::Result<Vec<Entry>> {
    let mut archive =
        zip::ZipArchive::new(File::open(work.join("archive"))?).map_err(io::Error::other)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(io::Error::other)?;
        let name = PathBuf::from(entry.name().map_err(io::Error::other)?.into_owned());
        let mode = entry.unix_mode().unwrap_or(0o644) & 0o777;
        if entry.is_dir() {
            target.directory(&name, mode)?;
        } else if entry.is_symlink() {
            let mut to = String::new();
            Read::take(&mut entry, 4096).read_to_string(&mut to)?;
            target.link(&name, Path::new(&to))?;
        } else {
            target.file(&name, mode, &mut entry)?;
        }
    }
    Ok(target.finish())
}

fn bad(name: &Path, why: &str) -> io::Error {
    io::Error::other(format!("`{}` {why}", name.display()))
}

/// The target directory.
struct Target {
    directory: OwnedFd,
    owner: (Option<Uid>, Option<Gid>),
    strip: usize,
    left: u64,
    entries: BTreeMap<String, Option<u64>>,
}

impl Target {
    fn open(desired: &DesiredArchive, write_access: &WriteAccess<'_>) -> Result<Self, StepError> {
        let path = write_access.path(&desired.path);
        let directory = place::created_directory(&path).map_err(|error| {
            StepError::because(format!("cannot create {}", path.display()), error)
        })?;
        let uid = match &desired.user {
            None => None,
            Some(user) => match (user.parse(), accounts::find_user(write_access, user)?) {
                (Ok(uid), _) => Some(uid),
                (_, Some(account)) => Some(account.uid),
                _ => return Err(StepError::new(format!("no user `{user}`"))),
            },
        };
        let gid = match &desired.group {
            None => None,
            Some(group) => {
                let found = accounts::find_gid(write_access, group)?;
                Some(found.ok_or_else(|| StepError::new(format!("no group `{group}`")))?)
            }
        };
        Ok(Self {
            directory,
            owner: (uid.map(Uid::from_raw), gid.map(Gid::from_raw)),
            strip: desired.strip,
            left: desired.largest,
            entries: BTreeMap::new(),
        })
    }

    /// Returns the name beneath the directory, or `None` if it is stripped away.
    fn name(&self, name: &Path) -> io::Result<Option<PathBuf>> {
        let mut clean = PathBuf::new();
        for part in name.components() {
            match part {
                Component::Normal(part) => clean.push(part),
                Component::CurDir => {}
                _ => return Err(bad(name, "would be outside the directory")),
            }
        }
        let clean: PathBuf = clean.components().skip(self.strip).collect();
        Ok((!clean.as_os_str().is_empty()).then_some(clean))
    }

    fn beneath(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat2(
            &self.directory,
            path,
            flags,
            Mode::from_raw_mode(mode),
            resolve,
        )
        .map_err(|error| match error {
            Errno::XDEV | Errno::LOOP => bad(path, "follows a link out of the directory"),
            error => io::Error::from(error),
        })
    }

    /// Returns the open parent of a name, created if missing, and the last component.
    fn parent(&self, name: &Path) -> io::Result<(OwnedFd, PathBuf)> {
        let parent = name.parent().unwrap_or(Path::new(""));
        let mut made = PathBuf::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut here = self.beneath(Path::new("."), flags, 0)?;
        for part in parent.components() {
            made.push(part);
            match rustix::fs::mkdirat(&here, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            here = self.beneath(&made.join("."), flags, 0)?;
        }
        Ok((here, name.file_name().unwrap_or_default().into()))
    }

    fn directory(&mut self, name: &Path, mode: u32) -> io::Result<()> {
        let Some(name) = self.name(name)? else {
            return Ok(());
        };
        let (parent, last) = self.parent(&name)?;
        match rustix::fs::mkdirat(&parent, &last, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let directory = self.beneath(&name.join("."), OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        self.settle(&directory, mode | 0o700)?;
        self.remember(&name, None);
        Ok(())
    }

    /// Writes a file beside its place and renames it, so that the file is always
    /// complete and a link of that name is replaced and not followed.
    fn file(&mut self, name: &Path, mode: u32, content: &mut dyn Read) -> io::Result<()> {
        let Some(name) = self.name(name)? else {
            return Ok(());
        };
        let (parent, last) = self.parent(&name)?;
        let mut file = StagedFile::create_in(&parent, last.as_os_str())?;
        let size = io::copy(&mut content.take(self.left.saturating_add(1)), &mut file)?;
        if size > self.left {
            return Err(io::Error::other(
                "it unpacks to more than `max_size` allows",
            ));
        }
        self.left -= size;
        file.set_access(self.raw_owner(), mode)?;
        file.publish_unsynced()?;
        self.remember(&name, Some(size));
        Ok(())
    }

    /// Creates a link. It may point anywhere: nothing is ever written through it that
    /// would land outside.
    fn link(&mut self, name: &Path, to: &Path) -> io::Result<()> {
        let Some(name) = self.name(name)? else {
            return Ok(());
        };
        let (parent, last) = self.parent(&name)?;
        replace_link_in(&parent, last.as_os_str(), to, self.raw_owner())?;
        self.remember(&name, None);
        Ok(())
    }

    /// Copies a file. A hard link becomes a copy, and only of something in the archive.
    fn copy(&mut self, from: &Path, name: &Path, mode: u32) -> io::Result<()> {
        let Some(from) = self.name(from)? else {
            return Ok(());
        };
        let mut source = File::from(self.beneath(&from, OFlags::RDONLY | OFlags::NONBLOCK, 0)?);
        if !source.metadata()?.is_file() {
            return Err(bad(&from, "is not a file that can be linked"));
        }
        source.rewind()?;
        self.file(name, mode, &mut source)
    }

    fn raw_owner(&self) -> (Option<u32>, Option<u32>) {
        let (uid, gid) = self.owner;
        (uid.map(Uid::as_raw), gid.map(Gid::as_raw))
    }

    fn settle(&self, file: impl AsFd, mode: u32) -> io::Result<()> {
        let (uid, gid) = self.owner;
        rustix::fs::fchown(&file, uid, gid)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(())
    }

    fn finish(self) -> Vec<Entry> {
        (self.entries.into_iter())
            .map(|(path, size)| Entry { path, size })
            .collect()
    }

    fn remember(&mut self, name: &Path, size: Option<u64>) {
        let path = name.to_string_lossy().into_owned();
        // The last of several entries of one name wins.
        self.entries.insert(path, size);
    }
}
