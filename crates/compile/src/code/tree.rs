//! An environment's files: packed once from git and archives, unpacked on any
//! server.
//!
//! Packing reads objects, not a working tree. No filters, attributes or hooks
//! take part, and the same parts always give the same bytes. Unpacking creates
//! links last and keeps none that leads out of the tree. So every file that is
//! read below the root is a file of the parts.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bunraku_process::{CapturePart, OutputLimits};

use super::git;

/// Limits for the list of a commit's files.
const LISTING: OutputLimits = OutputLimits {
    time: Duration::from_secs(600),
    stdout: CapturePart::AtMost(1 << 30),
    stderr: CapturePart::First(16 << 10),
};

/// The reason why a commit cannot be used as a tree of files.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("`{path}` is a submodule, and .gitmodules does not name its address")]
    Submodule { path: String },
    #[error("the archive of a module has an entry that is not a file: `{path}`")]
    NotAFile { path: String },
    #[error("the link `{path}` points outside the repository, to `{target}`")]
    Escape { path: String, target: String },
    #[error("the link `{path}` points to `{target}`, which does not exist")]
    Dangling { path: String, target: String },
    #[error("`{path}` is not a valid file name here")]
    Name { path: String },
    #[error("the files of the commit have {size} bytes, which exceeds the limit of {limit}")]
    TooLarge { size: u64, limit: u64 },
    #[error("the commit has {count} files, which exceeds the limit of {limit}")]
    TooMany { count: usize, limit: usize },
    #[error("unexpected output from git: {0}")]
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

/// A part of a tree, and its place.
#[derive(Clone, Debug)]
pub(crate) struct TreePart {
    pub content: PartContent,
    /// The directory below the root of the tree.
    pub place: PathBuf,
    /// Paths below the root that other parts replace.
    pub excluded: HashSet<PathBuf>,
    /// Whether only files are added that no earlier part has.
    pub fills_gaps: bool,
    /// Whether submodules are left out instead of being an error.
    pub skips_submodules: bool,
}

/// The files of a part.
#[derive(Clone, Debug)]
pub(crate) enum PartContent {
    /// A directory of a commit in a mirror.
    Git {
        mirror: PathBuf,
        commit: String,
        from: PathBuf,
    },
    /// A compressed archive of the Forge, whose only directory is the module.
    Archive(PathBuf),
}

impl TreePart {
    pub(crate) fn new(content: PartContent, place: impl Into<PathBuf>) -> Self {
        Self {
            content,
            place: place.into(),
            excluded: HashSet::new(),
            fills_gaps: false,
            skips_submodules: false,
        }
    }

    fn excludes(&self, path: &Path) -> bool {
        !self.excluded.is_empty() && path.ancestors().any(|one| self.excluded.contains(one))
    }
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
    Submodule,
}

/// The files and bytes that were packed so far, over several archives.
#[derive(Default)]
pub(crate) struct TreeUsage {
    bytes: u64,
    files: usize,
}

impl TreeUsage {
    fn add(&mut self, size: u64, limits: TreeLimits) -> Result<(), TreeError> {
        self.bytes += size;
        self.files += 1;
        if self.files > limits.files {
            let (count, limit) = (self.files, limits.files);
            return Err(TreeError::TooMany { count, limit });
        }
        if self.bytes > limits.bytes {
            let (size, limit) = (self.bytes, limits.bytes);
            return Err(TreeError::TooLarge { size, limit });
        }
        Ok(())
    }
}

/// The paths that are packed already.
#[derive(Default)]
struct TakenPaths {
    files: HashSet<PathBuf>,
    directories: HashSet<PathBuf>,
}

impl TakenPaths {
    fn add(&mut self, path: &Path) {
        self.files.insert(path.to_owned());
        for directory in path.ancestors().skip(1) {
            if !self.directories.insert(directory.to_owned()) {
                break;
            }
        }
    }

    /// Returns whether a file cannot be added beside the others.
    fn blocks(&self, path: &Path) -> bool {
        self.directories.contains(path) || path.ancestors().any(|one| self.files.contains(one))
    }
}

/// Packs parts into one archive.
struct Packer<'a> {
    limits: TreeLimits,
    usage: &'a mut TreeUsage,
    taken: TakenPaths,
    /// The places of all parts, where submodules may be.
    places: HashSet<PathBuf>,
}

/// Writes the files of all parts as a compressed archive. Blocks.
pub(crate) fn pack(
    parts: &[TreePart],
    limits: TreeLimits,
    usage: &mut TreeUsage,
    to: &Path,
) -> Result<(), TreeError> {
    let file = std::fs::File::create(to).map_err(io(format!("write {}", to.display())))?;
    let packed = flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::fast());
    let mut archive = tar::Builder::new(packed);
    let mut packer = Packer {
        limits,
        usage,
        taken: TakenPaths::default(),
        places: parts.iter().map(|part| part.place.clone()).collect(),
    };
    for part in parts {
        match &part.content {
            PartContent::Git {
                mirror,
                commit,
                from,
            } => packer.pack_git(part, mirror, &tree_name(commit, from), &mut archive)?,
            PartContent::Archive(path) => packer.pack_archive(part, path, &mut archive)?,
        }
    }
    let writing = || io(format!("write {}", to.display()));
    let file = archive
        .into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .map_err(writing())?;
    let file = file
        .into_inner()
        .map_err(|error| writing()(error.into_error()))?;
    file.sync_all().map_err(writing())
}

/// Returns git's name of a directory in a commit.
fn tree_name(commit: &str, from: &Path) -> String {
    if from.as_os_str().is_empty() {
        commit.to_owned()
    } else {
        format!("{commit}:{}", from.display())
    }
}

impl Packer<'_> {
    fn pack_git(
        &mut self,
        part: &TreePart,
        mirror: &Path,
        tree: &str,
        archive: &mut tar::Builder<impl Write>,
    ) -> Result<(), TreeError> {
        let entries = self.list(part, mirror, tree)?;
        if entries.is_empty() {
            return Ok(());
        }
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
                .try_for_each(|entry| append(archive, entry, &mut answers));
            // Ends the requests, even after an error.
            drop(answers);
            packed
        });
        child.finish();
        outcome
    }

    /// Lists the files of a part with their paths in the tree.
    fn list(
        &mut self,
        part: &TreePart,
        mirror: &Path,
        tree: &str,
    ) -> Result<Vec<Entry>, TreeError> {
        let output = git::command(mirror)
            .args(["ls-tree", "-r", "-z", "-l", "--full-tree", tree])
            .output_blocking(LISTING)
            .map_err(|error| io("run `git ls-tree`")(error.into_io()))?;
        if !output.status.success() {
            return Err(TreeError::Git(output.stderr_text().trim().to_owned()));
        }
        let mut entries = Vec::new();
        for line in output.stdout.split(|byte| *byte == 0) {
            if line.is_empty() {
                continue;
            }
            let mut entry = read_entry(line)?;
            entry.path = part.place.join(&entry.path);
            if part.excludes(&entry.path) {
                continue;
            }
            if entry.mode == Mode::Submodule {
                if part.skips_submodules || self.places.contains(&entry.path) {
                    continue;
                }
                let path = entry.path.to_string_lossy().into_owned();
                return Err(TreeError::Submodule { path });
            }
            if self.admits(part, &entry.path, entry.size)? {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// Counts a file. Returns false if it is left out.
    fn admits(&mut self, part: &TreePart, path: &Path, size: u64) -> Result<bool, TreeError> {
        if part.fills_gaps && self.taken.blocks(path) {
            return Ok(false);
        }
        self.taken.add(path);
        self.usage.add(size, self.limits)?;
        Ok(true)
    }

    /// Packs an archive of the Forge without its first directory.
    fn pack_archive(
        &mut self,
        part: &TreePart,
        path: &Path,
        archive: &mut tar::Builder<impl Write>,
    ) -> Result<(), TreeError> {
        let reading = || io(format!("read {}", path.display()));
        let file = std::fs::File::open(path).map_err(reading())?;
        let file = flate2::read::GzDecoder::new(BufReader::new(file));
        let most = self.limits.bytes.saturating_mul(2).saturating_add(1 << 30);
        let mut source = tar::Archive::new(file.take(most));
        for entry in source.entries().map_err(reading())? {
            let mut entry = entry.map_err(reading())?;
            let name = entry.path().map_err(reading())?.into_owned();
            let shown = || name.to_string_lossy().into_owned();
            let kind = entry.header().entry_type();
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            let mut steps = name.components().filter(|step| *step != Component::CurDir);
            steps.next();
            let below: PathBuf = steps.collect();
            if !is_below(&below) {
                return Err(TreeError::Name { path: shown() });
            }
            if !kind.is_file() && !kind.is_symlink() {
                return Err(TreeError::NotAFile { path: shown() });
            }
            let target = part.place.join(&below);
            let size = entry.size();
            if part.excludes(&target) || !self.admits(part, &target, size)? {
                continue;
            }
            let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            let mut header = plain_header(executable);
            let packing = || io(format!("pack {}", target.display()));
            if kind.is_symlink() {
                let link = entry.link_name().map_err(reading())?;
                let link = link.ok_or_else(|| TreeError::NotAFile { path: shown() })?;
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                let link = link.into_owned();
                archive
                    .append_link(&mut header, &target, link)
                    .map_err(packing())?;
            } else {
                header.set_size(size);
                archive
                    .append_data(&mut header, &target, &mut entry)
                    .map_err(packing())?;
            }
        }
        Ok(())
    }
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
        Some("160000") => Mode::Submodule,
        Some("120000") => Mode::Link,
        Some("100755") => Mode::Executable,
        Some(mode) if mode.starts_with("100") => Mode::File,
        _ => return Err(malformed()),
    };
    Ok(Entry {
        mode,
        object: object.ok_or_else(malformed)?.to_owned(),
        size: match (mode, size) {
            (Mode::Submodule, _) => 0,
            (_, size) => size
                .and_then(|size| size.parse().ok())
                .ok_or_else(malformed)?,
        },
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
    let mut header = plain_header(entry.mode == Mode::Executable);
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

/// A header without anything that differs between machines.
fn plain_header(is_executable: bool) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(if is_executable { 0o755 } else { 0o644 });
    header
}

/// An archive to unpack.
pub(crate) struct PackedTree<R> {
    pub packed: R,
    /// Whether links that lead nowhere or out of the tree are left out instead
    /// of being an error. Modules of others have such links in their tests.
    pub drops_bad_links: bool,
}

struct Link {
    path: PathBuf,
    target: PathBuf,
    is_optional: bool,
}

/// Unpacks archives into a directory that does not exist yet. Blocks.
pub(crate) fn unpack<R: Read>(
    trees: Vec<PackedTree<R>>,
    to: &Path,
    limits: TreeLimits,
) -> Result<(), TreeError> {
    let unpacking = |path: &Path| io(format!("unpack {}", path.display()));
    std::fs::create_dir_all(to).map_err(unpacking(to))?;
    let mut links = Vec::new();
    for tree in trees {
        unpack_files(tree, to, limits, &mut links)?;
    }
    link(to, &links)?;
    let directory = std::fs::File::open(to).map_err(unpacking(to))?;
    rustix::fs::syncfs(&directory).map_err(|error| unpacking(to)(error.into()))
}

fn unpack_files<R: Read>(
    tree: PackedTree<R>,
    to: &Path,
    limits: TreeLimits,
    links: &mut Vec<Link>,
) -> Result<(), TreeError> {
    let unpacking = |path: &Path| io(format!("unpack {}", path.display()));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tree.packed).take(
        // Leave room for the archive's own blocks.
        limits.bytes.saturating_mul(2).saturating_add(1 << 30),
    ));
    for entry in archive.entries().map_err(unpacking(to))? {
        let mut entry = entry.map_err(unpacking(to))?;
        let path = entry.path().map_err(unpacking(to))?.into_owned();
        if !is_below(&path) {
            let path = path.to_string_lossy().into_owned();
            return Err(TreeError::Name { path });
        }
        let place = to.join(&path);
        if let Some(target) = entry.link_name().map_err(unpacking(&path))? {
            links.push(Link {
                path,
                target: target.into_owned(),
                is_optional: tree.drops_bad_links,
            });
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
    Ok(())
}

/// Creates the links last, so that nothing is written through one. Then checks
/// that each leads to something in the tree.
fn link(root: &Path, links: &[Link]) -> Result<(), TreeError> {
    for Link { path, target, .. } in links {
        let place = root.join(path);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent).map_err(io(format!("unpack {}", path.display())))?;
        }
        std::os::unix::fs::symlink(target, &place)
            .map_err(io(format!("unpack {}", path.display())))?;
    }
    let root = root.canonicalize().map_err(io("resolve the tree's root"))?;
    // A link that is removed may be what another one leads through.
    let mut rest: Vec<&Link> = links.iter().collect();
    loop {
        let before = rest.len();
        let mut sound = Vec::new();
        for one in rest {
            match check_link(&root, one) {
                Ok(()) => sound.push(one),
                Err(_) if one.is_optional => {
                    std::fs::remove_file(root.join(&one.path))
                        .map_err(io(format!("leave out {}", one.path.display())))?;
                }
                Err(error) => return Err(error),
            }
        }
        if sound.len() == before {
            return Ok(());
        }
        rest = sound;
    }
}

fn check_link(root: &Path, link: &Link) -> Result<(), TreeError> {
    let shown = || {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        (text(&link.path), text(&link.target))
    };
    match root.join(&link.path).canonicalize() {
        Ok(found) if found.starts_with(root) && !link.target.is_absolute() => Ok(()),
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound && !link.target.is_absolute() =>
        {
            let (path, target) = shown();
            Err(TreeError::Dangling { path, target })
        }
        _ => {
            let (path, target) = shown();
            Err(TreeError::Escape { path, target })
        }
    }
}

/// Returns true if the path has only plain names, each one step down.
pub fn is_below(path: &Path) -> bool {
    path.components().next().is_some()
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}
