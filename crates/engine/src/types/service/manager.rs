//! The service managers of a machine, and the choice of the one for a service.

use std::path::Path;

use super::desired::Kind;
use super::init_script::InitScript;
use super::supervisor::ProcessSupervisor;
use super::systemd::Systemd;
use super::{DesiredService, ObservedService};
use crate::types::exec::{self, Run};
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

pub(super) trait ServiceManager {
    fn observe(
        &self,
        desired: &DesiredService,
        access: &ReadAccess<'_>,
    ) -> StepResult<ObservedService>;
    fn start(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult;
    fn stop(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult;

    fn restart(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        self.stop(desired, write_access)?;
        self.start(desired, write_access)
    }

    fn reload(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult;
    fn enable(
        &self,
        desired: &DesiredService,
        enable: bool,
        write_access: &WriteAccess<'_>,
    ) -> StepResult;

    fn mask(
        &self,
        _desired: &DesiredService,
        _mask: bool,
        _write_access: &WriteAccess<'_>,
    ) -> StepResult {
        Err(StepError::new("only systemd can mask a service"))
    }
}

/// Returns the manager of the service, or `None` if the machine does not know the service.
pub(super) fn of(
    desired: &DesiredService,
    access: &ReadAccess<'_>,
) -> Result<Option<Box<dyn ServiceManager>>, StepError> {
    let has_script = access
        .path(format!("/etc/init.d/{}", desired.short()))
        .exists();
    let has_commands = desired.start.is_some() || desired.stop.is_some();
    let kind = match desired.kind {
        Some(Kind::Init) if !has_script && !has_commands => return Ok(None),
        Some(kind) => kind,
        None if runs_systemd(access) => Kind::Systemd,
        None if has_script || has_commands => Kind::Init,
        None if has_unit(desired, access) => Kind::Systemd,
        None => return Ok(None),
    };
    Ok(Some(match kind {
        Kind::Systemd => Box::new(Systemd),
        Kind::Init => Box::new(InitScript),
        Kind::Supervised => Box::new(ProcessSupervisor),
    }))
}

/// Returns true if systemd runs, by the rule of `sd_booted`. A separate root has no
/// systemd that we could use.
pub(super) fn runs_systemd(access: &ReadAccess<'_>) -> bool {
    access.root().is_none() && Path::new("/run/systemd/system").is_dir()
}

fn has_unit(desired: &DesiredService, access: &ReadAccess<'_>) -> bool {
    let directories = [
        "/etc/systemd/system",
        "/run/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    directories.iter().any(|directory| {
        let path = access.path(format!("{directory}/{}.service", desired.short()));
        path.symlink_metadata().is_ok()
    })
}

/// Runs a command from the declaration.
pub(super) fn shell(command: &str, what: &str, write_access: &WriteAccess<'_>) -> StepResult {
    tool::act(&Run::new(exec::shell(command)), what, write_access).map(drop)
}
