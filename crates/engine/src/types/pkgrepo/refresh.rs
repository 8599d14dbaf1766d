//! Fetching metadata after repositories changed.

use std::time::Duration;

use super::DesiredRepository;
use crate::types::config_file::{self, NewFile};
use crate::types::package::{self, Manager};
use crate::{StepError, WriteAccess};

/// The time to wait for another user of the package manager.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Refreshes the metadata of one repository.
pub(super) fn one(
    desired: &DesiredRepository,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if !desired.wants_refresh() {
        return Ok(());
    }
    match desired.manager() {
        "dnf" => package::refresh_dnf_repository(&desired.name, LOCK_TIMEOUT, write_access),
        _ => apt_file(desired, write_access),
    }
}

/// Refreshes one file of apt. apt uses the path of a key as it is, even when it works
/// on another root. There it gets a copy of the file with the real path of the key.
fn apt_file(desired: &DesiredRepository, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let file = write_access.path(&desired.target);
    let key = desired
        .key
        .as_ref()
        .map(|key| &key.path)
        .or(desired.signed_by.as_ref());
    let (Some(_), Some(key)) = (write_access.root(), key) else {
        return package::refresh_apt_file(&file, LOCK_TIMEOUT, write_access);
    };
    let text = config_file::read(&file)?.unwrap_or_default();
    let text =
        String::from_utf8_lossy(&text).replace(key, &write_access.path(key).to_string_lossy());
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let copy = write_access.state_directory().join("sources").join(name);
    config_file::put(&copy, text.as_bytes(), NewFile::PUBLIC, write_access)?;
    let answer = package::refresh_apt_file(&copy, LOCK_TIMEOUT, write_access);
    config_file::remove(&copy, write_access)?;
    answer
}

/// Refreshes the metadata of all repositories of the manager once, for all changed ones.
pub(super) fn all(
    desired: &DesiredRepository,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if write_access.root().is_some() {
        return Err(StepError::new(
            "below another root each repository is refreshed alone",
        ));
    }
    let manager = package::of_machine(Some(desired.manager()), write_access)?;
    let key = Manager::metadata_key(&*manager);
    write_access.once_again(key);
    write_access.once(key, || manager.refresh(LOCK_TIMEOUT, write_access))
}
