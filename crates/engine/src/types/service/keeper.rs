//! The service managers of a machine, and the choice of the one for a service.

use std::path::Path;

use super::init_script::InitScript;
use super::supervised::Supervised;
use super::systemd::Systemd;
use super::wish::Kind;
use super::{Seen, Wish};
use crate::types::exec::{self, Run};
use crate::types::tool;
use crate::{Hands, Sight, StepError};

pub(super) trait Keeper {
    fn observe(&self, wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError>;
    fn start(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError>;
    fn stop(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError>;

    fn restart(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        self.stop(wish, hands)?;
        self.start(wish, hands)
    }

    fn reload(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError>;
    fn enable(&self, wish: &Wish, enable: bool, hands: &Hands<'_>) -> Result<(), StepError>;

    fn mask(&self, _wish: &Wish, _mask: bool, _hands: &Hands<'_>) -> Result<(), StepError> {
        Err(StepError::new("only systemd can mask a service"))
    }
}

/// Returns the manager of the service, or `None` if the machine does not know the service.
pub(super) fn of(wish: &Wish, sight: &Sight<'_>) -> Result<Option<Box<dyn Keeper>>, StepError> {
    let has_script = sight.path(format!("/etc/init.d/{}", wish.short())).exists();
    let has_commands = wish.start.is_some() || wish.stop.is_some();
    let kind = match wish.kind {
        Some(Kind::Init) if !has_script && !has_commands => return Ok(None),
        Some(kind) => kind,
        None if runs_systemd(sight) => Kind::Systemd,
        None if has_script || has_commands => Kind::Init,
        None if has_unit(wish, sight) => Kind::Systemd,
        None => return Ok(None),
    };
    Ok(Some(match kind {
        Kind::Systemd => Box::new(Systemd),
        Kind::Init => Box::new(InitScript),
        Kind::Supervised => Box::new(Supervised),
    }))
}

/// Returns true if systemd runs, by the rule of `sd_booted`. A separate root has no
/// systemd that we could use.
pub(super) fn runs_systemd(sight: &Sight<'_>) -> bool {
    sight.root().is_none() && Path::new("/run/systemd/system").is_dir()
}

fn has_unit(wish: &Wish, sight: &Sight<'_>) -> bool {
    let directories = [
        "/etc/systemd/system",
        "/run/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    directories.iter().any(|directory| {
        let path = sight.path(format!("{directory}/{}.service", wish.short()));
        path.symlink_metadata().is_ok()
    })
}

/// Runs a command from the declaration.
pub(super) fn shell(command: &str, what: &str, hands: &Hands<'_>) -> Result<(), StepError> {
    tool::act(&Run::new(exec::shell(command)), what, hands).map(drop)
}
