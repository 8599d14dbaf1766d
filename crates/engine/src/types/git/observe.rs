//! Observing a checkout and its source.

use super::{Checkout, DesiredCheckout, Ensure, ObservedCheckout, shown};
use crate::types::exec::{FinishedCommand, Run};
use crate::types::tool;
use crate::{ReadAccess, StepError};

/// Creates a git command for the checkout.
pub(super) fn git(desired: &DesiredCheckout, arguments: &[&str], access: &ReadAccess<'_>) -> Run {
    let reached = desired.reached.clone();
    let path = reached.unwrap_or_else(|| access.path(&desired.path));
    let mut words: Vec<std::ffi::OsString> = vec!["git".into(), "-C".into(), path.into()];
    words.extend(arguments.iter().map(Into::into));
    prepared(desired, Run::new(words))
}

/// Disables prompts, and output that could reveal a password.
pub(super) fn prepared(desired: &DesiredCheckout, run: Run) -> Run {
    let mut ssh = "ssh -o BatchMode=yes".to_owned();
    if let Some(identity) = &desired.identity {
        ssh.push_str(&format!(" -i '{}'", identity.replace('\'', "'\\''")));
    }
    let run = run
        .environment("GIT_TERMINAL_PROMPT", "0")
        .environment("GIT_ASKPASS", "/bin/false")
        .environment("SSH_ASKPASS", "/bin/false")
        .environment("GIT_SSH_COMMAND", ssh)
        .timeout(desired.timeout)
        .quiet();
    match &desired.user {
        Some(user) => run.user(user),
        None => run,
    }
}

/// Returns the error of git, without passwords.
pub(super) fn complaint(
    desired: &DesiredCheckout,
    what: &str,
    done: &FinishedCommand,
) -> StepError {
    let text = tool::complaint(what, done).chain();
    StepError::new(text.replace(&desired.source, &shown(&desired.source)))
}

fn ask(
    desired: &DesiredCheckout,
    arguments: &[&str],
    access: &ReadAccess<'_>,
) -> Result<Option<String>, StepError> {
    let done = git(desired, arguments, access).run(access)?;
    let text = done.stdout_text().trim().to_owned();
    Ok((done.succeeded() && !text.is_empty()).then_some(text))
}

pub(super) fn observe(
    desired: &DesiredCheckout,
    access: &ReadAccess<'_>,
) -> Result<ObservedCheckout, StepError> {
    let path = access.path(&desired.path);
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(ObservedCheckout::Nothing);
    };
    if !metadata.is_dir() {
        return Ok(ObservedCheckout::Other);
    }
    let empty = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        return Ok(ObservedCheckout::Nothing);
    }
    if desired.ensure == Ensure::Absent {
        return Ok(ObservedCheckout::Other);
    }
    let inside = git(desired, &["rev-parse", "--absolute-git-dir"], access).run(access)?;
    if !inside.succeeded() {
        let said = inside.stderr_text();
        if said.contains("dubious ownership") {
            let message = format!(
                "{} belongs to another user: set `user` to its owner",
                desired.path
            );
            return Err(StepError::new(message));
        }
        return Ok(ObservedCheckout::Other);
    }
    // A directory inside another checkout is not a checkout itself.
    let real = path.canonicalize().unwrap_or(path);
    if !std::path::Path::new(inside.stdout_text().trim()).starts_with(&real) {
        return Ok(ObservedCheckout::Other);
    }
    let status = ask(
        desired,
        &["status", "--porcelain", "--untracked-files=no"],
        access,
    )?;
    Ok(ObservedCheckout::Repository(Checkout {
        head: ask(
            desired,
            &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
            access,
        )?,
        source: ask(
            desired,
            &["config", "--get", &format!("remote.{}.url", desired.remote)],
            access,
        )?,
        wanted: wanted(desired, access)?,
        dirty: status.is_some(),
    }))
}

fn wanted(desired: &DesiredCheckout, access: &ReadAccess<'_>) -> Result<Option<String>, StepError> {
    match (desired.ensure, &desired.revision) {
        (Ensure::Latest, revision) => {
            match revision.as_deref().filter(|revision| is_commit(revision)) {
                Some(commit) => Ok(Some(commit.to_owned())),
                None => remote_tip(desired, access).map(Some),
            }
        }
        (Ensure::Present, Some(revision)) => known(desired, revision, access),
        _ => Ok(None),
    }
}

pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the commit of a revision among the objects fetched so far.
pub(super) fn known(
    desired: &DesiredCheckout,
    revision: &str,
    access: &ReadAccess<'_>,
) -> Result<Option<String>, StepError> {
    let names = [
        format!("refs/remotes/{}/{revision}", desired.remote),
        format!("refs/tags/{revision}"),
        revision.to_owned(),
    ];
    // A name must not be mistaken for a commit, nor a local branch for the source's.
    let hexadecimal = revision.len() >= 7 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    let count = if hexadecimal { 3 } else { 2 };
    for name in names.iter().take(count) {
        let commit = format!("{name}^{{commit}}");
        let found = ask(
            desired,
            &["rev-parse", "--verify", "--quiet", &commit],
            access,
        )?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns the current commit of the revision at the source.
fn remote_tip(desired: &DesiredCheckout, access: &ReadAccess<'_>) -> Result<String, StepError> {
    let revision = desired.revision.as_deref().unwrap_or("HEAD");
    let peeled = format!("{revision}^{{}}");
    let words = ["git", "ls-remote", "--", &desired.source, revision, &peeled];
    let done = prepared(desired, Run::new(words)).run(access)?;
    if !done.succeeded() {
        return Err(complaint(desired, "git ls-remote", &done));
    }
    tip(&done.stdout_text(), revision)
        .ok_or_else(|| StepError::new(format!("{} has no `{revision}`", shown(&desired.source))))
}

/// Finds a revision. A branch comes before a tag. For a tag with a message, returns the
/// commit and not the tag.
fn tip(listing: &str, revision: &str) -> Option<String> {
    let names = [
        format!("refs/heads/{revision}"),
        format!("refs/tags/{revision}^{{}}"),
        format!("refs/tags/{revision}"),
        revision.to_owned(),
    ];
    names.iter().find_map(|name| {
        let line = listing.lines().find(|line| {
            line.split_once('\t')
                .is_some_and(|(_, found)| found == name)
        })?;
        line.split_once('\t').map(|(commit, _)| commit.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_comes_before_a_tag_and_a_tag_means_its_commit() {
        let listing = "aaa\trefs/tags/v1\nbbb\trefs/tags/v1^{}\nccc\trefs/heads/x/v1\n";
        assert_eq!(tip(listing, "v1").as_deref(), Some("bbb"));
        assert_eq!(
            tip(&format!("{listing}ddd\trefs/heads/v1\n"), "v1").as_deref(),
            Some("ddd")
        );
        assert_eq!(tip(listing, "v2"), None);
    }
}
