//! Restoring files that a run replaced.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bunraku_model::catalog::ResourceReference;
use serde_json::Map;

use crate::access::{Licence, LocalSources, RunContext};
use crate::types::file::put_back;
use crate::{Backup, Cancellation, ReadAccess, Secrets, StepError};

/// Restores a replaced file with its mode and owner. The current file is kept as a backup in turn.
pub fn restore(
    state_directory: &Path,
    backup: &Backup,
    cancellation: Cancellation,
) -> Result<(), StepError> {
    let secrets = Secrets::default();
    let run = RunContext {
        cancellation,
        sink: &(),
        secrets: crate::secrets::RunSecrets::new(&secrets),
        root: None,
        state_directory: state_directory.to_owned(),
        sources: Arc::new(LocalSources::default()),
        facts: Arc::new(Map::new()),
        labels: Arc::new(Map::new()),
        commands: crate::CommandSetting::default(),
        managed: None,
        coordinator: Arc::new(crate::NoCoordinator),
        users: Mutex::default(),
        groups: Mutex::default(),
        once: Mutex::new(HashMap::new()),
        dirty_directories: Mutex::default(),
    };
    let reference = ResourceReference::new("file", backup.path.clone());
    let access = ReadAccess {
        run: &run,
        reference: &reference,
        noop: false,
        secret: false,
        upstream_pending: false,
    };
    let licence = Licence::of_run(false).expect("not a noop run");
    put_back(backup, &licence.write_access(access))
}
