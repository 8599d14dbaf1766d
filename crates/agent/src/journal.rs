//! Answers that the server may not have received yet.
//!
//! Each command is answered once. The answer is on disk before it is sent, and stays there until
//! the server has it. A repeated command (because an answer was lost, or the agent died) is
//! answered from here and not executed again.
//!
//! A crash *during* a command leaves no answer, so the command is executed again. Every command
//! must tolerate that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bunraku_model::CommandId;
use bunraku_wire::api::CommandResult;

/// The reason why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is corrupt; move it away to continue (some answers may then be sent twice)", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// The answers, in memory and on disk.
pub(crate) struct Journal {
    path: PathBuf,
    answers: BTreeMap<CommandId, CommandResult>,
}

impl Journal {
    /// Reads the answers that an earlier process left.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, JournalError> {
        let path = data_dir.join("answers.json");
        let answers = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|source| JournalError::Damaged {
                path: path.clone(),
                source,
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => {
                return Err(JournalError::File {
                    doing: "read",
                    path,
                    source,
                });
            }
        };
        Ok(Self { path, answers })
    }

    /// Returns the answer that was given before.
    pub(crate) fn answer(&self, id: CommandId) -> Option<&CommandResult> {
        self.answers.get(&id)
    }

    /// Returns all answers that the server may not have.
    pub(crate) fn unconfirmed(&self) -> Vec<(CommandId, CommandResult)> {
        self.answers
            .iter()
            .map(|(id, result)| (*id, result.clone()))
            .collect()
    }

    /// Writes an answer to disk, before it is sent.
    pub(crate) fn record(
        &mut self,
        id: CommandId,
        result: CommandResult,
    ) -> Result<(), JournalError> {
        self.answers.insert(id, result);
        self.save()
    }

    /// Records that the server has the answer.
    pub(crate) fn confirm(&mut self, id: CommandId) -> Result<(), JournalError> {
        match self.answers.remove(&id) {
            Some(_) => self.save(),
            None => Ok(()),
        }
    }

    fn save(&self) -> Result<(), JournalError> {
        let text =
            serde_json::to_vec(&self.answers).expect("answers are plain data that JSON can hold");
        bunraku_files::replace(&self.path, &text, 0o600).map_err(|source| JournalError::File {
            doing: "write",
            path: self.path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_wire::api::CommandOutcome;
    use uuid::Uuid;

    fn result(message: &str) -> CommandResult {
        CommandResult {
            outcome: CommandOutcome::Done,
            message: message.to_owned(),
            finished: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_answer_outlives_the_agent_until_the_server_has_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let id = CommandId(Uuid::from_u128(7));
        let mut journal = Journal::open(directory.path()).expect("a new journal");
        journal.record(id, result("pong")).expect("recorded");
        let mut journal = Journal::open(directory.path()).expect("the same journal");
        assert_eq!(journal.answer(id), Some(&result("pong")));
        journal.confirm(id).expect("confirmed");
        let journal = Journal::open(directory.path()).expect("the same journal");
        assert_eq!(journal.answer(id), None);
        assert!(journal.unconfirmed().is_empty());
    }

    #[test]
    fn a_damaged_journal_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("answers.json");
        std::fs::write(&path, "{\"half").expect("written");
        assert!(matches!(
            Journal::open(directory.path()),
            Err(JournalError::Damaged { .. })
        ));
        assert_eq!(
            std::fs::read_to_string(path).expect("still there"),
            "{\"half"
        );
    }
}
