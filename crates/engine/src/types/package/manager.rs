//! The interface to a package manager, and the choice of the machine's manager.

use std::time::Duration;

use super::{Statuses, apt::Apt, dnf::Dnf};
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

/// One change of the installed packages.
#[derive(Default, Debug)]
pub(crate) struct Transaction {
    pub(super) install: Vec<Install>,
    pub(super) remove: Vec<String>,
    pub(super) purge: Vec<String>,
    pub(super) options: Settings,
}

#[derive(Debug)]
pub(super) struct Install {
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// A package file instead of a repository.
    pub(super) file: Option<std::path::PathBuf>,
    /// Another version is already installed.
    pub(super) installed: bool,
}

/// The settings that all members of a transaction share.
#[derive(Default, Debug, Clone)]
pub(super) struct Settings {
    pub(super) install: Vec<String>,
    pub(super) uninstall: Vec<String>,
    pub(super) recommends: Option<bool>,
    pub(super) replace_configuration: bool,
    pub(super) repository: Option<String>,
    pub(super) lock_timeout: Duration,
}

pub(crate) trait Manager {
    /// Returns the key under which a run remembers that metadata is fresh.
    fn metadata_key(&self) -> &'static str;

    /// Returns the installed packages of these names.
    fn installed(&self, names: &[&str], access: &ReadAccess<'_>) -> StepResult<Statuses>;

    /// Adds the versions in the repositories, from existing metadata.
    fn candidates(
        &self,
        names: &[&str],
        statuses: &mut Statuses,
        access: &ReadAccess<'_>,
    ) -> StepResult;

    /// Returns the names that no repository has, according to the metadata.
    fn unknown(&self, names: &[&str], access: &ReadAccess<'_>) -> StepResult<Vec<String>>;

    /// Fetches metadata of all repositories.
    fn refresh(&self, lock_timeout: Duration, write_access: &WriteAccess<'_>) -> StepResult;

    fn carry_out(&self, transaction: &Transaction, write_access: &WriteAccess<'_>) -> StepResult;

    fn hold(&self, names: &[&str], hold: bool, write_access: &WriteAccess<'_>) -> StepResult;
}

/// Returns the requested manager, or the one that the machine has.
pub(crate) fn of_machine(
    provider: Option<&str>,
    access: &ReadAccess<'_>,
) -> StepResult<Box<dyn Manager>> {
    let name = match provider {
        Some(name) => name,
        None => found(access).ok_or_else(|| {
            StepError::new("this machine has no supported package manager (apt, dnf)")
        })?,
    };
    let program = if name == "dnf" { "dnf" } else { "apt-get" };
    if !tool::exists(program) {
        return Err(StepError::new(format!("`{program}` is not installed")));
    }
    Ok(match name {
        "dnf" => Box::new(Dnf),
        _ => Box::new(Apt),
    })
}

/// Detects the manager by its database, as a machine may have the tools of another manager.
pub(crate) fn found(access: &ReadAccess<'_>) -> Option<&'static str> {
    if access.path("/var/lib/dpkg/status").exists() {
        return Some("apt");
    }
    let rpm = ["/var/lib/rpm", "/usr/lib/sysimage/rpm", "/etc/yum.repos.d"];
    let has_rpm = rpm.iter().any(|path| access.path(path).exists());
    has_rpm.then_some("dnf")
}
