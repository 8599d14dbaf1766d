//! What a provider may reach: [`Sight`] to look, [`Hands`] to change.
//!
//! A noop run has no [`Hands`] to lend, and nobody outside the executor can
//! make some: so it cannot change anything, by construction.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::catalog::ResourceReference;
use serde_json::{Map, Value};

use crate::{Cancellation, Event, EventSink, Secrets, StepError, Stream};

/// Where content comes from that a catalog only names.
pub trait Sources: Send + Sync {
    /// Opens the content at an address (`/path`, `file:///path`, `puppet:///…`, `salt://…`).
    fn open(&self, address: &str) -> Result<Box<dyn Read + Send>, StepError>;
}

/// What all steps of one run share.
pub(crate) struct RunContext<'a> {
    pub(crate) cancellation: Cancellation,
    pub(crate) sink: &'a dyn EventSink,
    pub(crate) secrets: &'a Secrets,
    pub(crate) root: Option<PathBuf>,
    pub(crate) state_directory: PathBuf,
    pub(crate) sources: Arc<dyn Sources>,
    pub(crate) facts: Arc<Map<String, Value>>,
    pub(crate) once: Mutex<HashMap<String, Arc<Mutex<bool>>>>,
    pub(crate) dirty_directories: Mutex<std::collections::HashSet<PathBuf>>,
}

/// The looking half: everything here leaves the machine as it is.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub(crate) run: &'a RunContext<'a>,
    pub(crate) reference: &'a ResourceReference,
    pub(crate) noop: bool,
    pub(crate) upstream_pending: bool,
}

/// The changing half. Exists only inside a run that is meant to change things.
#[derive(Clone, Copy)]
pub struct Hands<'a> {
    sight: Sight<'a>,
}

impl<'a> Deref for Hands<'a> {
    type Target = Sight<'a>;

    fn deref(&self) -> &Sight<'a> {
        &self.sight
    }
}

impl<'a> Sight<'a> {
    /// The resource at work.
    pub fn reference(&self) -> &ResourceReference {
        self.reference
    }

    /// Noop, and something that this resource depends on would change: what
    /// is missing now may be there by then.
    pub fn may_appear(&self) -> bool {
        self.noop && self.upstream_pending
    }

    pub fn cancellation(&self) -> &Cancellation {
        &self.run.cancellation
    }

    /// The directory under which the managed machine lies, when it is not `/`.
    pub fn root(&self) -> Option<&Path> {
        self.run.root.as_deref()
    }

    /// A path of the managed machine as this process reaches it.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match &self.run.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    pub fn sources(&self) -> &dyn Sources {
        &*self.run.sources
    }

    pub fn facts(&self) -> &Map<String, Value> {
        &self.run.facts
    }

    /// Tells the line that a command printed.
    pub fn output(&self, stream: Stream, line: &str) {
        let line = self.run.secrets.hide(line.to_owned());
        self.run.sink.tell(Event::Output {
            reference: self.reference,
            stream,
            line: &line,
        });
    }
}

/// The executor's right to lend [`Hands`]; a noop run has none.
pub(crate) struct Licence {
    _private: (),
}

impl Licence {
    /// `None` for a noop run.
    pub(crate) fn of_run(noop: bool) -> Option<Self> {
        (!noop).then_some(Self { _private: () })
    }

    pub(crate) fn hands<'a>(&self, sight: Sight<'a>) -> Hands<'a> {
        Hands { sight }
    }
}

impl Hands<'_> {
    /// Does something once in this run, until [`Hands::once_again`]: the
    /// metadata of a package manager is refreshed once, however many ask.
    /// Others who ask meanwhile wait. A failure is not remembered.
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

    /// Makes the next [`Hands::once`] with this key act again (a repository
    /// was added).
    pub fn once_again(&self, key: &str) {
        let mut once = self.run.once.lock().unwrap_or_else(PoisonError::into_inner);
        once.remove(key);
    }

    /// Where the engine keeps its own files (backups, last applied state).
    pub fn state_directory(&self) -> &Path {
        &self.run.state_directory
    }

    /// Has a directory synced to disk before the run ends.
    ///
    /// Its entries change by atomic renames of synced files, so a crash before
    /// that leaves the old file or the new one. One sync for each directory,
    /// not for each file, is what makes a first run bearable.
    pub fn sync_directory_later(&self, directory: &Path) {
        let mut dirty = (self.run.dirty_directories.lock()).unwrap_or_else(PoisonError::into_inner);
        if !dirty.contains(directory) {
            dirty.insert(directory.to_owned());
        }
    }
}

/// Content that lies on this machine.
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
}

impl LocalSources {
    /// The file that an address means.
    pub fn find(&self, address: &str) -> Result<PathBuf, StepError> {
        if address.starts_with('/') {
            return Ok(PathBuf::from(address));
        }
        let Some((scheme, rest)) = address.split_once(':') else {
            return Err(StepError::new(format!("`{address}` is not an address")));
        };
        let rest = rest.trim_start_matches('/');
        if scheme == "file" {
            return Ok(Path::new("/").join(rest));
        }
        // An address must not climb out of its root.
        if Path::new(rest)
            .components()
            .any(|part| !matches!(part, std::path::Component::Normal(_)))
        {
            return Err(StepError::new(format!("`{address}` leaves its root")));
        }
        let roots = (self.roots.get(scheme)).ok_or_else(|| {
            StepError::new(format!(
                "nothing here serves `{scheme}:` addresses ({address})"
            ))
        })?;
        (roots.iter().map(|root| root.join(rest)))
            .find(|path| path.exists())
            .ok_or_else(|| StepError::new(format!("`{address}` does not exist")))
    }
}
