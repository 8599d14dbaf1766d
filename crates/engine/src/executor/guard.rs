//! `onlyif`, `unless`, `creates` and `check_cmd` of resources whose type does not
//! handle them itself.

use super::Run;
use crate::access::ReadAccess;
use crate::plan::Step;
use crate::types::exec::{Run as Command, shell};
use crate::{Reason, StepError};

impl Run<'_> {
    /// Returns the reason if the guards prevent the step from running.
    pub(super) fn guarded(
        &self,
        step: &Step,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Reason>, StepError> {
        let control = &step.control;
        if !control.creates.is_empty()
            && control
                .creates
                .iter()
                .all(|path| access.path(path).symlink_metadata().is_ok())
        {
            let paths = control.creates.join(", ");
            return Ok(Some(Reason::Guard(format!("creates: {paths} exists"))));
        }
        for command in &control.onlyif {
            if !succeeds(command, access)? {
                return Ok(Some(Reason::Guard(format!("onlyif: `{command}` failed"))));
            }
        }
        if control.unless.is_empty() {
            return Ok(None);
        }
        for command in &control.unless {
            if !succeeds(command, access)? {
                return Ok(None);
            }
        }
        Ok(Some(Reason::Guard(format!(
            "unless: `{}` succeeded",
            control.unless.join("`, `")
        ))))
    }

    /// Runs `check_cmd`: a change counts only if all of its commands succeed.
    pub(super) fn check(&self, step: &Step, access: &ReadAccess<'_>) -> Result<(), StepError> {
        for command in &step.control.check_cmd {
            if !succeeds(command, access)? {
                return Err(StepError::new(format!("check_cmd `{command}` failed")));
            }
        }
        Ok(())
    }
}

fn succeeds(command: &str, access: &ReadAccess<'_>) -> Result<bool, StepError> {
    let run = Command::new(shell(command)).quiet();
    let done = run.run(access)?;
    Ok(done.code == Some(0))
}
