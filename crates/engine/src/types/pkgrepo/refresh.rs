//! Fetching metadata after repositories changed.

use std::time::Duration;

use super::Wish;
use crate::types::config_file::{self, NewFile};
use crate::types::package::{self, Manager};
use crate::{Hands, StepError};

/// The time to wait for another user of the package manager.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Refreshes the metadata of one repository.
pub(super) fn one(wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    if !wish.wants_refresh() {
        return Ok(());
    }
    match wish.manager() {
        "dnf" => package::refresh_dnf_repository(&wish.name, LOCK_TIMEOUT, hands),
        _ => apt_file(wish, hands),
    }
}

/// Refreshes one file of apt. apt uses the path of a key as it is, even when it works
/// on another root. There it gets a copy of the file with the real path of the key.
fn apt_file(wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    let file = hands.path(&wish.target);
    let key = wish
        .key
        .as_ref()
        .map(|key| &key.path)
        .or(wish.signed_by.as_ref());
    let (Some(_), Some(key)) = (hands.root(), key) else {
        return package::refresh_apt_file(&file, LOCK_TIMEOUT, hands);
    };
    let text = config_file::read(&file)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).replace(key, &hands.path(key).to_string_lossy());
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let copy = hands.state_directory().join("sources").join(name);
    config_file::put(&copy, text.as_bytes(), NewFile::PUBLIC, hands)?;
    let answer = package::refresh_apt_file(&copy, LOCK_TIMEOUT, hands);
    config_file::remove(&copy, hands)?;
    answer
}

/// Refreshes the metadata of all repositories of the manager once, for all changed ones.
pub(super) fn all(wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    if hands.root().is_some() {
        return Err(StepError::new(
            "below another root each repository is refreshed alone",
        ));
    }
    let manager = package::of_machine(Some(wish.manager()), hands)?;
    let key = Manager::metadata_key(&*manager);
    hands.once_again(key);
    hands.once(key, || manager.refresh(LOCK_TIMEOUT, hands))
}
