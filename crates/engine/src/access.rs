//! The access that a provider gets: [`ReadAccess`] to observe, [`WriteAccess`] to change.
//!
//! A noop run has no [`WriteAccess`] to lend, and only the executor can create them. So a
//! noop run cannot change anything, by construction.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::LockName;
use bunraku_model::catalog::ResourceReference;
use bunraku_process::WorkLog;
use serde_json::{Map, Value};

use crate::coordination::{
    Coordinator, FireResult, Firing, LockAttempt, LockRenewal, LockRequest, LockState,
};
use crate::lock;
use crate::secrets::RunSecrets;
use crate::{Cancellation, Event, EventSink, StepError, Stream};

/// A source of content that a catalog only names.
pub trait Sources: Send + Sync {
    /// Opens the content at an address (`/path`, `file:///path`, `puppet:///…`, `salt://…`).
    fn open(&self, address: &str) -> Result<Box<dyn Read + Send>, StepError>;

    /// Returns everything below the directory at an address, directories first.
    fn list(&self, address: &str) -> Result<Vec<SourceEntry>, StepError>;
}

/// What all commands of a run have in common.
#[derive(Clone, Debug, Default)]
pub struct CommandSetting {
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(String, String)>,
    /// The kernel ends a command when this process ends, even by `kill -9`.
    pub end_with_us: bool,
}

/// One entry below a source directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceEntry {
    /// The path relative to the directory.
    pub path: PathBuf,
    pub directory: bool,
    /// The address of its content, if it is a file.
    pub address: String,
}

/// Every path that some resource of a run manages.
pub(crate) trait ManagedPaths: Sync {
    fn paths(&self) -> &BTreeSet<PathBuf>;
}

/// The state that all steps of one run share.
pub(crate) struct RunContext<'a> {
    pub(crate) cancellation: Cancellation,
    pub(crate) sink: &'a dyn EventSink,
    pub(crate) secrets: RunSecrets<'a>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) state_directory: PathBuf,
    pub(crate) sources: Arc<dyn Sources>,
    pub(crate) facts: Arc<Map<String, Value>>,
    pub(crate) labels: Arc<Map<String, Value>>,
    pub(crate) commands: CommandSetting,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    /// `None` for a restore.
    pub(crate) managed: Option<&'a dyn ManagedPaths>,
    /// IDs of users and groups that were found. Missing ones may still be created.
    pub(crate) users: Mutex<HashMap<String, u32>>,
    pub(crate) groups: Mutex<HashMap<String, u32>>,
    pub(crate) once: Mutex<HashMap<String, Arc<Mutex<bool>>>>,
    pub(crate) dirty_directories: Mutex<std::collections::HashSet<PathBuf>>,
}

/// The read-only half: nothing here changes the machine.
#[derive(Clone, Copy)]
pub struct ReadAccess<'a> {
    pub(crate) run: &'a RunContext<'a>,
    pub(crate) reference: &'a ResourceReference,
    pub(crate) noop: bool,
    /// The output of the resource is a secret.
    pub(crate) secret: bool,
    pub(crate) upstream_pending: bool,
}

/// The changing half. Exists only inside a run that may change things.
#[derive(Clone, Copy)]
pub struct WriteAccess<'a> {
    access: ReadAccess<'a>,
}

impl<'a> Deref for WriteAccess<'a> {
    type Target = ReadAccess<'a>;

    fn deref(&self) -> &ReadAccess<'a> {
        &self.access
    }
}

impl<'a> ReadAccess<'a> {
    /// Returns the current resource.
    pub fn reference(&self) -> &ResourceReference {
        self.reference
    }

    /// Returns true in noop if a dependency of this resource would change: a missing
    /// thing may exist by then.
    pub fn may_appear(&self) -> bool {
        self.noop && self.upstream_pending
    }

    /// Returns the records of the programs that runs on this machine have started.
    pub(crate) fn work_log(&self) -> WorkLog {
        lock::work_log(&self.run.state_directory)
    }

    pub fn cancellation(&self) -> &Cancellation {
        &self.run.cancellation
    }

    /// Returns the root directory of the managed machine, if it is not `/`.
    pub fn root(&self) -> Option<&Path> {
        self.run.root.as_deref()
    }

    /// Returns the path under which this process reaches a path of the managed machine.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match &self.run.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// Returns true if another resource manages this path.
    pub fn is_managed(&self, path: &Path) -> bool {
        self.run
            .managed
            .is_some_and(|managed| managed.paths().contains(&self.unrooted(path)))
    }

    /// Returns true if another resource manages something below this path.
    pub fn manages_below(&self, path: &Path) -> bool {
        let path = self.unrooted(path);
        let Some(managed) = self.run.managed else {
            return false;
        };
        let mut from_here = managed.paths().range(path.clone()..);
        let next = from_here.find(|managed| **managed != path);
        next.is_some_and(|managed| managed.starts_with(&path))
    }

    /// Returns the path as the catalog has it.
    fn unrooted(&self, path: &Path) -> PathBuf {
        match self
            .run
            .root
            .as_ref()
            .and_then(|root| path.strip_prefix(root).ok())
        {
            Some(inside) => Path::new("/").join(inside),
            None => path.to_owned(),
        }
    }

    /// Returns the ID of a user, by name or number.
    pub fn user_id(&self, name: &str) -> Option<u32> {
        let find = || uzers::get_user_by_name(name).map(|user| user.uid());
        remembered(&self.run.users, name, find)
    }

    /// Returns the ID of a group, by name or number.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        let find = || uzers::get_group_by_name(name).map(|group| group.gid());
        remembered(&self.run.groups, name, find)
    }

    pub fn sources(&self) -> &dyn Sources {
        &*self.run.sources
    }

    pub fn facts(&self) -> &Map<String, Value> {
        &self.run.facts
    }

    /// Returns the labels of the alert or call that started the run.
    pub fn labels(&self) -> &Map<String, Value> {
        &self.run.labels
    }

    /// Reports a line that a command printed, unless it is a secret.
    pub fn output(&self, stream: Stream, line: &str) {
        if self.secret {
            return;
        }
        let line = self.run.secrets.hide(line.to_owned());
        self.run.sink.emit(Event::Output {
            reference: self.reference,
            stream,
            line: &line,
        });
    }
}

impl ReadAccess<'_> {
    pub(crate) fn lock_standing(
        &self,
        name: &LockName,
        session: &str,
    ) -> Result<LockState, StepError> {
        let locks = self.run.coordinator.locks()?;
        locks.state(name, session, self.cancellation())
    }

    pub(crate) fn renew_lock(&self, name: &LockName, token: u64) -> Result<LockRenewal, StepError> {
        let locks = self.run.coordinator.locks()?;
        locks.renew(name, token, self.cancellation())
    }
}

fn remembered(
    known: &Mutex<HashMap<String, u32>>,
    name: &str,
    find: impl FnOnce() -> Option<u32>,
) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = known.get(name) {
        return Some(*number);
    }
    let number = find()?;
    known.insert(name.to_owned(), number);
    Some(number)
}

/// The executor's permission to lend [`WriteAccess`]. A noop run has none.
pub(crate) struct Licence {
    _private: (),
}

impl Licence {
    /// Returns `None` for a noop run.
    pub(crate) fn of_run(noop: bool) -> Option<Self> {
        (!noop).then_some(Self { _private: () })
    }

    pub(crate) fn write_access<'a>(&self, access: ReadAccess<'a>) -> WriteAccess<'a> {
        WriteAccess { access }
    }
}

impl WriteAccess<'_> {
    /// Does something once in this run, until [`WriteAccess::once_again`]: the metadata of a
    /// package manager is refreshed once, even if many steps request it. Other callers
    /// wait meanwhile. A failure is not remembered.
    pub fn once(
        &self,
        key: &str,
        act: impl FnOnce() -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let slot = {
            let mut once = self.run.once.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(once.entry(key.to_owned()).or_default())
        };
        let mut done = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if !*done {
            act()?;
            *done = true;
        }
        Ok(())
    }

    /// Makes the next [`WriteAccess::once`] with this key act again (a repository
    /// was added).
    pub fn once_again(&self, key: &str) {
        let mut once = self.run.once.lock().unwrap_or_else(PoisonError::into_inner);
        once.remove(key);
    }

    /// Returns the directory of the engine's own files (backups, last applied state).
    pub fn state_directory(&self) -> &Path {
        &self.run.state_directory
    }

    /// Schedules a directory to be synced to disk before the run ends.
    ///
    /// Its entries change by atomic renames of synced files, so a crash before that
    /// leaves the old file or the new one. One sync for each directory, not for each
    /// file, keeps a first run fast enough.
    pub fn sync_directory_later(&self, directory: &Path) {
        let mut dirty = (self.run.dirty_directories.lock()).unwrap_or_else(PoisonError::into_inner);
        if !dirty.contains(directory) {
            dirty.insert(directory.to_owned());
        }
    }
}

impl WriteAccess<'_> {
    pub(crate) fn fire(&self, firing: &Firing) -> Result<FireResult, StepError> {
        self.run.coordinator.fire(firing, self.cancellation())
    }

    pub(crate) fn acquire_lock(&self, request: &LockRequest) -> Result<LockAttempt, StepError> {
        let locks = self.run.coordinator.locks()?;
        locks.acquire(request, self.cancellation())
    }

    pub(crate) fn release_lock(&self, name: &LockName, token: u64) -> Result<(), StepError> {
        let locks = self.run.coordinator.locks()?;
        locks.release(name, token, self.cancellation())
    }
}

/// Content on this machine.
#[derive(Clone, Debug, Default)]
pub struct LocalSources {
    /// For each scheme (`salt`, `puppet`), the directories that are searched in order.
    pub roots: HashMap<String, Vec<PathBuf>>,
}

impl Sources for LocalSources {
    fn open(&self, address: &str) -> Result<Box<dyn Read + Send>, StepError> {
        let path = self.find(address)?;
        match std::fs::File::open(&path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(StepError::because(
                format!("cannot read {}", path.display()),
                error,
            )),
        }
    }

    fn list(&self, address: &str) -> Result<Vec<SourceEntry>, StepError> {
        let top = self.find(address)?;
        let mut entries = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(relative) = open.pop() {
            let directory = top.join(&relative);
            let cannot =
                |error| StepError::because(format!("cannot list {}", directory.display()), error);
            for entry in std::fs::read_dir(&directory).map_err(cannot)? {
                let entry = entry.map_err(cannot)?;
                let path = relative.join(entry.file_name());
                let directory = entry.path().is_dir();
                if directory {
                    open.push(path.clone());
                }
                let address = top.join(&path).to_string_lossy().into_owned();
                entries.push(SourceEntry {
                    path,
                    directory,
                    address,
                });
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }
}

/// Returns the places of an address below a root. `puppet:///modules/NAME/x` is the file `x` of a
/// module: the root is a directory of modules, or contains one.
fn places(scheme: &str, root: &Path, rest: &str) -> Vec<PathBuf> {
    let mut places = vec![root.join(rest)];
    if scheme == "puppet"
        && let Some(below) = rest.strip_prefix("modules/")
        && let Some((module, file)) = below.split_once('/')
    {
        for modules in [root.join("modules"), root.to_owned()] {
            places.push(modules.join(module).join("files").join(file));
        }
    }
    places
}

impl LocalSources {
    /// Returns the file at an address.
    pub fn find(&self, address: &str) -> Result<PathBuf, StepError> {
        if address.starts_with('/') {
            return Ok(PathBuf::from(address));
        }
        let Some((scheme, rest)) = address.split_once(':') else {
            return Err(StepError::new(format!(
                "`{address}` is not a valid address"
            )));
        };
        let rest = rest.trim_start_matches('/');
        if scheme == "file" {
            return Ok(Path::new("/").join(rest));
        }
        // An address must not escape its root.
        if Path::new(rest)
            .components()
            .any(|part| !matches!(part, std::path::Component::Normal(_)))
        {
            return Err(StepError::new(format!(
                "`{address}` points outside its root"
            )));
        }
        let roots = (self.roots.get(scheme)).ok_or_else(|| {
            StepError::new(format!(
                "`{scheme}:` addresses are not available here ({address}); `--source-root {scheme}=DIRECTORY` names their directory"
            ))
        })?;
        let mut candidates = roots.iter().flat_map(|root| places(scheme, root, rest));
        (candidates.find(|path| path.exists()))
            .ok_or_else(|| StepError::new(format!("`{address}` does not exist")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_modules_are_found_below_a_directory_of_modules_or_above_it() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("modules/motd/files/etc/motd");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        std::fs::write(&file, "hello").expect("a file");
        for root in [place.path().to_owned(), place.path().join("modules")] {
            let roots = HashMap::from([("puppet".to_owned(), vec![root])]);
            let sources = LocalSources { roots };
            let found = sources.find("puppet:///modules/motd/etc/motd");
            assert_eq!(found.expect("a file"), file);
            assert!(sources.find("puppet:///modules/motd/../../x").is_err());
            assert!(sources.find("puppet:///modules/other/etc/motd").is_err());
        }
    }
}
