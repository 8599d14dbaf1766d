//! Decides if a command needs to run.

use super::run::RunError;
use super::wish::{Wish, Words};
use crate::{Sight, StepError};

/// The combined answer of the guards.
pub(crate) struct Verdict {
    /// The reason why the command does not run. `None` when it should run.
    pub(super) stay: Option<String>,
}

/// Evaluates the guards, `creates` first, as it costs nothing.
///
/// Lists differ: in Puppet one existing path or one successful `unless` is enough to
/// prevent the command, in Salt it takes all of them.
pub(super) fn ask(wish: &Wish, sight: &Sight<'_>) -> Result<Verdict, StepError> {
    let stay = |why: String| Ok(Verdict { stay: Some(why) });
    let exists = |path: &&String| sight.path(path.as_str()).symlink_metadata().is_ok();
    let existing: Vec<&String> = wish.creates.iter().filter(exists).collect();
    if enough(wish, existing.len(), wish.creates.len()) {
        return stay(format!("{} exists", existing[0]));
    }
    for guard in &wish.onlyif {
        if !succeeds(wish, guard, sight)? {
            return stay("onlyif failed".to_owned());
        }
    }
    let mut successes = 0;
    for guard in &wish.unless {
        successes += usize::from(succeeds(wish, guard, sight)?);
        if enough(wish, successes, wish.unless.len()) {
            return stay("unless succeeded".to_owned());
        }
    }
    Ok(Verdict { stay: None })
}

fn enough(wish: &Wish, count: usize, all: usize) -> bool {
    count > 0 && (!wish.state || count == all)
}

/// Runs a guard. One that cannot be started or takes too long has not succeeded. One
/// that is interrupted or whose user does not exist has no result.
fn succeeds(wish: &Wish, guard: &Words, sight: &Sight<'_>) -> Result<bool, StepError> {
    match wish.run(guard).quiet().run(sight) {
        Ok(done) => Ok(done.succeeded()),
        Err(RunError::Start { .. } | RunError::Timeout { .. }) => Ok(false),
        // Noop: things that earlier resources would create for this guard do not exist yet.
        Err(RunError::NoDirectory(_) | RunError::Unknown { .. }) if sight.may_appear() => Ok(false),
        Err(error) => Err(StepError::because(
            format!("cannot ask `{}`", guard.shown()),
            error,
        )),
    }
}
