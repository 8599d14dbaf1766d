//! The program of a module: started on demand, sent one request at a time, and ended with the run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bunraku_module::{Manifest, PROTOCOL, VerifiedModule};
use serde_json::{Value, json};

use super::session::{Session, SessionError};
use super::unpacked::UnpackedModule;
use crate::{ReadAccess, StepError};

/// The time that a program has to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(60);

/// The reason why a module's types cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("the module `{module}` adds the type `{name}`, which already exists")]
    Taken { module: String, name: String },
}

/// One module, with its idle processes.
pub(super) struct Program {
    module: VerifiedModule,
    state_directory: PathBuf,
    free: Mutex<Vec<Session>>,
    /// Held while applying: two resources of one module often share a file, and two
    /// programs that read, change and write it would lose a change.
    applies: Mutex<()>,
    /// The module's files, after its first request. Dropped last, after the processes
    /// that run from them.
    unpacked: Mutex<Option<UnpackedModule>>,
}

impl Program {
    pub(super) fn new(module: &VerifiedModule, state_directory: &Path) -> Arc<Self> {
        Arc::new(Self {
            module: module.clone(),
            state_directory: state_directory.to_owned(),
            free: Mutex::default(),
            applies: Mutex::default(),
            unpacked: Mutex::default(),
        })
    }

    fn manifest(&self) -> &Manifest {
        self.module.manifest()
    }

    /// Returns the directory of the files. They are written when the first process starts.
    fn directory(&self) -> io::Result<PathBuf> {
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if unpacked.is_none() {
            *unpacked = Some(UnpackedModule::new(
                self.module.files(),
                &self.state_directory,
            )?);
        }
        let unpacked = unpacked.as_ref().expect("it has just been unpacked");
        Ok(unpacked.directory.clone())
    }

    /// Returns the module's name for messages.
    pub(super) fn title(&self) -> String {
        format!(
            "the module `{}` {}",
            self.manifest().name,
            self.manifest().version
        )
    }

    /// Sends a request, and waits up to this many seconds for the answer. Steps that
    /// run at the same time each have their own process.
    pub(super) fn ask(
        &self,
        request: Value,
        timeout: u32,
        access: &ReadAccess<'_>,
    ) -> Result<Value, StepError> {
        let failed = |error: SessionError| self.failure(error);
        let free = self.free().pop();
        let mut session = match free {
            Some(session) => session,
            None => self.started(access).map_err(failed)?,
        };
        let deadline = Instant::now() + Duration::from_secs(u64::from(timeout));
        match session.ask(request, deadline, access) {
            Ok(answer) => {
                self.free().push(session);
                Ok(answer)
            }
            // The module reported the error itself, and can continue.
            Err(error @ SessionError::Told(_)) => {
                self.free().push(session);
                Err(failed(error))
            }
            // After any other error, dropping the session ends its processes.
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits for the turn to apply. Only one step at a time may change things.
    /// Observing needs no turn.
    pub(super) fn turn_to_apply(&self) -> std::sync::MutexGuard<'_, ()> {
        self.applies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self, error: SessionError) -> StepError {
        if matches!(error, SessionError::Interrupted) {
            return StepError::interrupted();
        }
        let text = format!("{} {error}", self.title());
        match error {
            SessionError::Start(source) | SessionError::Follow(source) => {
                StepError::because(text, source)
            }
            _ => StepError::new(text),
        }
    }

    /// Returns a process that speaks our protocol and has the types of the manifest.
    fn started(&self, access: &ReadAccess<'_>) -> Result<Session, SessionError> {
        let directory = self.directory().map_err(SessionError::Start)?;
        let mut session = Session::start(&directory, &self.manifest().command, &access.work_log())?;
        let deadline = Instant::now() + INTRODUCTION;
        let hello = json!({"method": "hello", "protocols": [PROTOCOL]});
        let answer = session.ask(hello, deadline, access)?;
        if answer.get("protocol").and_then(Value::as_u64) != Some(u64::from(PROTOCOL)) {
            return Err(SessionError::Protocol);
        }
        let answer = session.ask(json!({"method": "describe"}), deadline, access)?;
        if described(&answer) != Some(self.expected()) {
            return Err(SessionError::OtherTypes);
        }
        Ok(session)
    }

    fn expected(&self) -> Vec<(String, Vec<String>)> {
        let types = self.manifest().types.iter();
        let names = types.map(|one| {
            let properties = one.properties.iter().map(|property| property.name.clone());
            (one.name.clone(), sorted(properties.collect()))
        });
        sorted(names.collect())
    }
}

/// Returns the types and their properties in an answer to `describe`.
fn described(answer: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let types = answer.get("types")?.as_array()?.iter().map(|one| {
        let properties = one.get("properties")?.as_array()?.iter().map(text);
        Some((
            text(one.get("name")?)?,
            sorted(properties.collect::<Option<_>>()?),
        ))
    });
    types.collect::<Option<_>>().map(sorted)
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}
