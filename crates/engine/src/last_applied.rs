//! What was last in place, to tell a correction of drift from a new wish.
//!
//! One line for each resource: the hash of what was declared when it was last
//! in order. A change to a resource whose declaration has the same hash is
//! corrective: the machine drifted. Kept readable to its owner alone, as a
//! hash of a weak secret could be guessed.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_model::catalog::ResourceReference;

use crate::{Finished, Plan, Status};

const FILE: &str = "last-applied";

/// Why the record cannot be read or written.
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

/// The record of earlier runs.
#[derive(Default)]
pub(crate) struct LastApplied {
    declared: HashMap<String, [u8; 16]>,
}

impl LastApplied {
    /// An unreadable line is passed over: then its change counts as intentional.
    pub(crate) fn load(directory: &Path) -> Result<Self, LastAppliedError> {
        let path = directory.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(LastAppliedError::Read { path, source }),
        };
        let declared = text.lines().filter_map(|line| {
            let (hash, reference) = line.split_once(' ')?;
            let mut bytes = [0; 16];
            hex::decode_to_slice(hash, &mut bytes).ok()?;
            Some((reference.to_owned(), bytes))
        });
        Ok(Self {
            declared: declared.collect(),
        })
    }

    /// Whether this very declaration was in place before.
    pub(crate) fn had(&self, reference: &ResourceReference, declared: &[u8; 16]) -> bool {
        self.declared.get(&key(reference)) == Some(declared)
    }

    /// Records what is in place now. Writes nothing when nothing is new, which
    /// is the usual case and is found out without copying anything.
    pub(crate) fn save(
        &self,
        directory: &Path,
        plan: &Plan,
        finished: &[Finished],
    ) -> Result<(), LastAppliedError> {
        if self.is_current(plan, finished) {
            return Ok(());
        }
        let statuses: HashMap<&ResourceReference, Status> = finished
            .iter()
            .map(|one| (&*one.reference, one.outcome.status))
            .collect();
        let mut now: HashMap<String, [u8; 16]> = HashMap::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let key = key(&step.reference);
            match statuses.get(&*step.reference) {
                Some(Status::Changed | Status::Unchanged) => {
                    now.insert(key, step.declared);
                }
                Some(Status::Failed) => {}
                _ => {
                    if let Some(before) = self.declared.get(&key) {
                        now.insert(key, *before);
                    }
                }
            }
        }
        if now == self.declared {
            return Ok(());
        }
        write(directory, &now)
    }

    fn is_current(&self, plan: &Plan, finished: &[Finished]) -> bool {
        let settled =
            |one: &Finished| matches!(one.outcome.status, Status::Changed | Status::Unchanged);
        let mut line = String::new();
        self.declared.len() == plan.steps.len()
            && finished.iter().all(settled)
            && plan.steps.iter().all(|step| {
                line.clear();
                write_key(&step.reference, &mut line);
                self.declared.get(&line) == Some(&step.declared)
            })
    }
}

fn write(directory: &Path, now: &HashMap<String, [u8; 16]>) -> Result<(), LastAppliedError> {
    let path = directory.join(FILE);
    let failed = |source| LastAppliedError::Write {
        path: path.clone(),
        source,
    };
    let mut lines: Vec<_> = now.iter().collect();
    lines.sort_unstable();
    let mut text = String::new();
    for (reference, hash) in lines {
        let _ = writeln!(text, "{} {reference}", hex::encode(hash));
    }
    std::fs::create_dir_all(directory).map_err(failed)?;
    let temporary = directory.join(format!("{FILE}.new"));
    let mut options = std::fs::OpenOptions::new();
    let mut file = (options.write(true).create(true).truncate(true).mode(0o600))
        .open(&temporary)
        .map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&temporary, &path).map_err(failed)
}

/// A reference on one line.
fn key(reference: &ResourceReference) -> String {
    let mut line = String::new();
    write_key(reference, &mut line);
    line
}

fn write_key(reference: &ResourceReference, line: &mut String) {
    let _ = write!(line, "{reference}");
    if line.contains(['\\', '\n']) {
        *line = line.replace('\\', "\\\\").replace('\n', "\\n");
    }
}
