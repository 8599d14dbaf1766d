//! Decides if a command needs to run.

use super::desired::{DeclaredCommand, DesiredExec};
use super::run::RunError;
use crate::{ReadAccess, StepError};

/// The combined answer of the guards.
pub(crate) struct GuardVerdict {
    /// The reason why the command does not run. `None` when it should run.
    pub(super) stay: Option<String>,
}

/// Evaluates the guards, `creates` first, as it costs nothing.
///
/// Lists differ: in Puppet one existing path or one successful `unless` is enough to
/// prevent the command, in Salt it takes all of them.
pub(super) fn ask(
    desired: &DesiredExec,
    access: &ReadAccess<'_>,
) -> Result<GuardVerdict, StepError> {
    let stay = |why: String| Ok(GuardVerdict { stay: Some(why) });
    let exists = |path: &&String| access.path(path.as_str()).symlink_metadata().is_ok();
    let existing: Vec<&String> = desired.creates.iter().filter(exists).collect();
    if enough(desired, existing.len(), desired.creates.len()) {
        return stay(format!("{} exists", existing[0]));
    }
    for guard in &desired.onlyif {
        if !succeeds(desired, guard, access)? {
            return stay("onlyif failed".to_owned());
        }
    }
    let mut successes = 0;
    for guard in &desired.unless {
        successes += usize::from(succeeds(desired, guard, access)?);
        if enough(desired, successes, desired.unless.len()) {
            return stay("unless succeeded".to_owned());
        }
    }
    Ok(GuardVerdict { stay: None })
}

fn enough(desired: &DesiredExec, count: usize, all: usize) -> bool {
    count > 0 && (!desired.state || count == all)
}

/// Runs a guard. One that cannot be started or takes too long has not succeeded. One
/// that is interrupted or whose user does not exist has no result.
fn succeeds(
    desired: &DesiredExec,
    guard: &DeclaredCommand,
    access: &ReadAccess<'_>,
) -> Result<bool, StepError> {
    match desired.run(guard).quiet().run(access) {
        Ok(done) => Ok(done.succeeded()),
        Err(RunError::Start { .. } | RunError::Timeout { .. }) => Ok(false),
        // Noop: things that earlier resources would create for this guard do not exist yet.
        Err(RunError::NoDirectory(_) | RunError::Unknown { .. }) if access.may_appear() => {
            Ok(false)
        }
        Err(error) => Err(StepError::because(
            format!("cannot run `{}`", guard.shown()),
            error,
        )),
    }
}
