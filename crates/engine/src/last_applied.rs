//! The last applied state, to distinguish a correction of drift from a new declaration.
//!
//! It has one line for each resource: the hash of its declaration when it was last in
//! order. A change to a resource whose declaration has the same hash is corrective: the
//! machine drifted. Only the owner can read the file, as a hash of a weak secret could
//! be guessed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bunraku_model::catalog::ResourceReference;

use crate::{CatalogPlan, ResourceResult, Status};

const FILE: &str = "last-applied";

/// The reason why the record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LastAppliedError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The record of earlier runs. It is parsed only on demand: in the usual run nothing
/// changed, and comparing the texts is enough.
#[derive(Default)]
pub(crate) struct LastApplied {
    text: String,
    declared: OnceLock<HashMap<String, [u8; 16]>>,
}

impl LastApplied {
    /// Loads the record. An unreadable line is ignored: its change then counts as intentional. So is
    /// a record that belongs to another user, if the run only looks: anyone may look.
    pub(crate) fn load(directory: &Path, noop: bool) -> Result<Self, LastAppliedError> {
        let path = directory.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) if noop && error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Self::default());
            }
            Err(source) => return Err(LastAppliedError::Read { path, source }),
        };
        Ok(Self {
            text,
            declared: OnceLock::new(),
        })
    }

    fn declared(&self) -> &HashMap<String, [u8; 16]> {
        self.declared.get_or_init(|| {
            let declared = self.text.lines().filter_map(|line| {
                let (hash, reference) = line.split_once(' ')?;
                let mut bytes = [0; 16];
                hex::decode_to_slice(hash, &mut bytes).ok()?;
                Some((reference.to_owned(), bytes))
            });
            declared.collect()
        })
    }

    /// Returns true if exactly this declaration was in place before.
    pub(crate) fn had(&self, reference: &ResourceReference, declared: &[u8; 16]) -> bool {
        self.declared().get(&key(reference)) == Some(declared)
    }

    /// Records the current state. Writes nothing when nothing is new.
    pub(crate) fn save(
        &self,
        directory: &Path,
        plan: &CatalogPlan,
        finished: &[ResourceResult],
    ) -> Result<(), LastAppliedError> {
        let settled = |one: &ResourceResult| {
            matches!(one.outcome.status, Status::Changed | Status::Unchanged)
        };
        let all = plan.is_whole() && finished.len() >= plan.steps.len();
        let now = if all && finished.iter().all(settled) {
            self.all_settled(plan)
        } else {
            self.settled_so_far(plan, finished)
        };
        if now == self.text {
            return Ok(());
        }
        write(directory, &now)
    }

    fn all_settled(&self, plan: &CatalogPlan) -> String {
        let mut text = String::with_capacity(self.text.len());
        for step in &plan.steps {
            write_line(&step.declared, &key(&step.reference), &mut text);
        }
        text
    }

    /// Returns the new record. Failed resources are removed, and resources that were
    /// not observed stay as they were.
    fn settled_so_far(&self, plan: &CatalogPlan, finished: &[ResourceResult]) -> String {
        let statuses: HashMap<&ResourceReference, Status> = finished
            .iter()
            .map(|one| (&*one.reference, one.outcome.status))
            .collect();
        let mut text = String::with_capacity(self.text.len());
        for step in &plan.steps {
            let key = key(&step.reference);
            let hash = match statuses.get(&*step.reference) {
                Some(Status::Changed | Status::Unchanged) => Some(&step.declared),
                Some(Status::Failed) => None,
                _ => self.declared().get(&key),
            };
            if let Some(hash) = hash {
                write_line(hash, &key, &mut text);
            }
        }
        text
    }
}

fn write_line(hash: &[u8; 16], key: &str, text: &mut String) {
    let mut digits = [0; 32];
    hex::encode_to_slice(hash, &mut digits).expect("two digits for each byte");
    text.extend(digits.map(char::from));
    text.push(' ');
    text.push_str(key);
    text.push('\n');
}

fn write(directory: &Path, text: &str) -> Result<(), LastAppliedError> {
    let path = directory.join(FILE);
    let failed = |source| LastAppliedError::Write {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    bunraku_files::replace(&path, text.as_bytes(), 0o600).map_err(failed)
}

/// Returns a reference on one line.
fn key(reference: &ResourceReference) -> String {
    let (type_name, title) = (reference.type_name(), reference.title());
    let mut line = String::with_capacity(type_name.len() + title.len() + 2);
    for part in [type_name, "[", title, "]"] {
        line.push_str(part);
    }
    if line.contains(['\\', '\n']) {
        line = line.replace('\\', "\\\\").replace('\n', "\\n");
    }
    line
}
