//! The state of a watcher, written to disk before it acts on it. The decisions are pure.
//!
//! A cue is recorded before its run starts and removed after the run has ended. A watcher that dies
//! in between runs again and loses nothing.

use std::path::PathBuf;

use bunraku_wire::api::TriggerCause;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The number of remembered uuids.
const SEEN: usize = 1_000;

/// The maximum number of pending cues kept individually. They become one run anyway.
const MOST_WAITING: usize = 200;

/// One cue, as passed to a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Cue {
    pub(super) trigger: String,
    pub(super) hostname: String,
    pub(super) causes: Vec<TriggerCause>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    /// The first revision not yet seen.
    pub(super) next: Option<u64>,
    /// The first index of the v2 API not yet seen.
    #[serde(default)]
    pub(super) next_v2: Option<u64>,
    seen: Vec<String>,
    pub(super) waiting: Vec<Cue>,
    pub(super) running: Vec<Cue>,
}

impl State {
    /// Records a cue, unless it was seen before. Returns true if it is new.
    pub(super) fn note(&mut self, uuid: &str, cue: Cue) -> bool {
        if self.seen.iter().any(|seen| seen == uuid) {
            return false;
        }
        self.seen.push(uuid.to_owned());
        let surplus = self.seen.len().saturating_sub(SEEN);
        self.seen.drain(..surplus);
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(cue);
        }
        true
    }

    /// Starts one run for all pending cues. Returns nothing while a run is active.
    pub(super) fn start(&mut self) -> Option<Vec<Cue>> {
        if !self.running.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.running = std::mem::take(&mut self.waiting);
        Some(self.running.clone())
    }

    pub(super) fn ended(&mut self) {
        self.running.clear();
    }

    /// Schedules again a run that an earlier process started.
    fn recover(&mut self) {
        let mut again = std::mem::take(&mut self.running);
        again.append(&mut self.waiting);
        self.waiting = again;
    }
}

/// The state and its file.
pub(super) struct StateFile {
    path: PathBuf,
    pub(super) state: State,
}

impl StateFile {
    /// Opens the file. Also creates the directory, which a machine that has only ever watched does
    /// not have.
    pub(super) fn open(path: PathBuf) -> Result<Self, Failure> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| {
                Failure::new(format!("cannot create {}", directory.display())).caused_by(&error)
            })?;
        }
        let mut state: State = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                Failure::new(format!("{} is corrupt", path.display()))
                    .caused_by(&error)
                    .hint("move it away to start with new triggers only")
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::default(),
            Err(error) => {
                return Err(
                    Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
                );
            }
        };
        state.recover();
        Ok(Self { path, state })
    }

    pub(super) fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec(&self.state)?;
        bunraku_files::replace(&self.path, &text, 0o600).map_err(|error| {
            Failure::new(format!("cannot write {}", self.path.display())).caused_by(&error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cue(trigger: &str) -> Cue {
        Cue {
            trigger: trigger.to_owned(),
            hostname: "web".to_owned(),
            causes: Vec::new(),
        }
    }

    #[test]
    fn cues_during_a_run_become_one_run_after_it() {
        let mut state = State::default();
        assert!(state.note("1", cue("a")));
        assert_eq!(state.start().map(|cues| cues.len()), Some(1));
        assert!(state.note("2", cue("b")));
        assert!(state.note("3", cue("c")));
        assert_eq!(state.start(), None, "one at a time");
        state.ended();
        assert_eq!(state.start().map(|cues| cues.len()), Some(2));
        state.ended();
        assert_eq!(state.start(), None);
    }

    #[test]
    fn a_cue_that_comes_twice_counts_once() {
        let mut state = State::default();
        assert!(state.note("1", cue("a")));
        assert!(!state.note("1", cue("a")));
        assert_eq!(state.waiting.len(), 1);
    }

    #[test]
    fn a_storm_is_one_run_and_does_not_grow_for_ever() {
        let mut state = State::default();
        for number in 0..2 * SEEN {
            assert!(state.note(&number.to_string(), cue("a")));
        }
        assert_eq!(state.seen.len(), SEEN);
        assert_eq!(state.waiting.len(), MOST_WAITING);
        let newest = (2 * SEEN - 1).to_string();
        assert!(!state.note(&newest, cue("a")), "it was just seen");
        assert!(state.start().is_some());
        state.ended();
        assert_eq!(state.start(), None, "one run was for all of them");
    }

    #[test]
    fn a_run_that_was_cut_off_is_done_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("not/there/yet/state.json");
        let mut file = StateFile::open(path.clone()).expect("a new one");
        file.state.note("1", cue("a"));
        file.state.start();
        file.save().expect("saved");
        let mut file = StateFile::open(path).expect("the same");
        assert_eq!(file.state.start(), Some(vec![cue("a")]));
    }
}
