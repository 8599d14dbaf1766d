//! A commit's files: packed once from git, unpacked on any server.
//!
//! Packing reads objects, not a working tree. No filters, attributes or hooks
//! take part, and the same commit always gives the same bytes. Unpacking
//! creates links last and refuses any that leads out of the tree. So every file
//! that is read below the root is a file of the commit.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bunraku_process::{Keep, OutputLimits};

use super::git;

/// Limits for the list of a commit's files.
const LISTING: OutputLimits = OutputLimits {
    time: Duration::from_secs(600),
    stdout: Keep::AtMost(1 << 30),
    stderr: Keep::First(16 << 10),
};

/// The reason why a commit cannot be used as a tree of files.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("`{path}` is a submodule, and submodules are not fetched")]
    Submodule { path: String },
    #[error("the link `{path}` leads out of the repository, to `{target}`")]
    Escape { path: String, target: String },
    #[error("the link `{path}` leads nowhere, to `{target}`")]
    Dangling { path: String, target: String },
    #[error("`{path}` cannot be the name of a file here")]
    Name { path: String },
    #[error("the commit has {size} bytes in its files, and at most {limit} are taken")]
    TooLarge { size: u64, limit: u64 },
    #[error("the commit has {count} files, and at most {limit} are taken")]
    TooMany { count: usize, limit: usize },
    #[error("git gave something else than the commit's files: {0}")]
    Git(String),
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
}

fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> TreeError {
    let doing = doing.into();
    move |source| TreeError::Io { doing, source }
}

/// Limits of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeLimits {
    pub bytes: u64,
    pub files: usize,
}

struct Entry {
    mode: Mode,
    object: String,
    size: u64,
    path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    File,
    Executable,
    Link,
}

/// Writes a commit's files as a compressed archive. Blocks.
pub(crate) fn pack(
    mirror: &Path,
    commit: &str,
    limits: TreeLimits,
    to: &Path,
) -> Result<(), TreeError> {
    let entries = list(mirror, commit, limits)?;
    let mut child = git::command(mirror)
        .args(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .start_blocking()
        .map_err(io("start `git cat-file`"))?;
    let (ask, answers) = child
        .take_blocking_pipes()
        .map_err(io("start `git cat-file`"))?;
    let (mut ask, mut answers) = (BufWriter::new(ask), BufReader::new(answers));
    let file = std::fs::File::create(to).map_err(io(format!("write {}", to.display())))?;
    let packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    let mut archive = tar::Builder::new(packed);
    let outcome = std::thread::scope(|scope| {
        // Send the requests from a separate thread, so that neither side waits
        // for the other.
        scope.spawn(|| {
            for entry in &entries {
                if writeln!(ask, "{}", entry.object).is_err() {
                    return;
                }
            }
            let _ = ask.flush();
            drop(ask);
        });
        let packed = entries
            .iter()
            .try_for_each(|entry| append(&mut archive, entry, &mut answers));
        // Ends the requests, even after an error.
        drop(answers);
        packed
    });
    child.finish();
    outcome?;
    let writing = || io(format!("write {}", to.display()));
    let file = archive
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .map_err(writing())?;
    file.sync_all().map_err(writing())
}

fn list(mirror: &Path, commit: &str, limits: TreeLimits) -> Result<Vec<Entry>, TreeError> {
    let output = git::command(mirror)
        .args(["ls-tree", "-r", "-z", "-l", "--full-tree", commit])
        .output_blocking(LISTING)
        .map_err(|error| io("run `git ls-tree`")(error.into_io()))?;
    if !output.status.success() {
        return Err(TreeError::Git(output.stderr_text().trim().to_owned()));
    }
    let mut entries = Vec::new();
    let mut size = 0_u64;
    for line in output.stdout.split(|byte| *byte == 0) {
        if line.is_empty() {
            continue;
        }
        let entry = read_entry(line)?;
        size += entry.size;
        entries.push(entry);
    }
    let (count, limit) = (entries.len(), limits.files);
    if count > limit {
        return Err(TreeError::TooMany { count, limit });
    }
    if size > limits.bytes {
        let limit = limits.bytes;
        return Err(TreeError::TooLarge { size, limit });
    }
    Ok(entries)
}

/// Parses a line such as `100644 blob 3f2a…    1234\tpath`.
fn read_entry(line: &[u8]) -> Result<Entry, TreeError> {
    let malformed = || TreeError::Git(String::from_utf8_lossy(line).into_owned());
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (head, path) = line.split_at(tab.ok_or_else(malformed)?);
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&path[1..]));
    let head = std::str::from_utf8(head).map_err(|_| malformed())?;
    let mut words = head.split_whitespace();
    let (mode, _, object, size) = (words.next(), words.next(), words.next(), words.next());
    let shown = || path.to_string_lossy().into_owned();
    if !is_below(&path) {
        return Err(TreeError::Name { path: shown() });
    }
    let mode = match mode {
        Some("160000") => return Err(TreeError::Submodule { path: shown() }),
        Some("120000") => Mode::Link,
        Some("100755") => Mode::Executable,
        Some(mode) if mode.starts_with("100") => Mode::File,
        _ => return Err(malformed()),
    };
    Ok(Entry {
        mode,
        object: object.ok_or_else(malformed)?.to_owned(),
        size: size
            .and_then(|size| size.parse().ok())
            .ok_or_else(malformed)?,
        path,
    })
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    entry: &Entry,
    answers: &mut impl BufRead,
) -> Result<(), TreeError> {
    let reading = || io("read from `git cat-file`");
    let mut head = String::new();
    answers.read_line(&mut head).map_err(reading())?;
    if head.trim_end() != format!("{} blob {}", entry.object, entry.size) {
        return Err(TreeError::Git(head.trim_end().to_owned()));
    }
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(if entry.mode == Mode::Executable {
        0o755
    } else {
        0o644
    });
    let packing = || io(format!("pack {}", entry.path.display()));
    if entry.mode == Mode::Link {
        let mut target = vec![0; usize::try_from(entry.size).unwrap_or(0)];
        answers.read_exact(&mut target).map_err(reading())?;
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        let target = Path::new(std::ffi::OsStr::from_bytes(&target));
        archive
            .append_link(&mut header, &entry.path, target)
            .map_err(packing())?;
    } else {
        header.set_size(entry.size);
        let content = answers.take(entry.size);
        archive
            .append_data(&mut header, &entry.path, content)
            .map_err(packing())?;
    }
    let mut end = [0];
    answers.read_exact(&mut end).map_err(reading())
}

/// Unpacks an archive into a directory that does not exist yet. Blocks.
pub(crate) fn unpack(packed: impl Read, to: &Path, limits: TreeLimits) -> Result<(), TreeError> {
    let unpacking = |path: &Path| io(format!("unpack {}", path.display()));
    std::fs::create_dir_all(to).map_err(unpacking(to))?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed).take(
        // Leave room for the archive's own blocks.
        limits.bytes.saturating_mul(2).saturating_add(1 << 30),
    ));
    let mut links = Vec::new();
    for entry in archive.entries().map_err(unpacking(to))? {
        let mut entry = entry.map_err(unpacking(to))?;
        let path = entry.path().map_err(unpacking(to))?.into_owned();
        if !is_below(&path) {
            let path = path.to_string_lossy().into_owned();
            return Err(TreeError::Name { path });
        }
        let place = to.join(&path);
        if let Some(target) = entry.link_name().map_err(unpacking(&path))? {
            links.push((path, target.into_owned()));
            continue;
        }
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(unpacking(&path))?;
        }
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if executable { 0o555 } else { 0o444 })
            .open(&place)
            .map_err(unpacking(&path))?;
        std::io::copy(&mut entry, &mut file).map_err(unpacking(&path))?;
    }
    link(to, &links)?;
    let directory = std::fs::File::open(to).map_err(unpacking(to))?;
    rustix::fs::syncfs(&directory).map_err(|error| unpacking(to)(error.into()))
}

/// Creates the links last, so that nothing is written through one. Then checks
/// that each leads to something in the tree.
fn link(root: &Path, links: &[(PathBuf, PathBuf)]) -> Result<(), TreeError> {
    for (path, target) in links {
        let place = root.join(path);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(io(format!("unpack {}", path.display())))?;
        }
        std::os::unix::fs::symlink(target, &place)
            .map_err(io(format!("unpack {}", path.display())))?;
    }
    let root = root.canonicalize().map_err(io("resolve the tree's root"))?;
    for (path, target) in links {
        let shown = || {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            (text(path), text(target))
        };
        match root.join(path).canonicalize() {
            Ok(found) if found.starts_with(&root) && !target.is_absolute() => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !target.is_absolute() => {
                let (path, target) = shown();
                return Err(TreeError::Dangling { path, target });
            }
            _ => {
                let (path, target) = shown();
                return Err(TreeError::Escape { path, target });
            }
        }
    }
    Ok(())
}

/// Returns true if the path has only plain names, each one step down.
pub fn is_below(path: &Path) -> bool {
    path.components().next().is_some()
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}
