//! Observing a checkout and its source.

use super::{Checkout, Ensure, Seen, Wish, shown};
use crate::types::exec::{Done, Run};
use crate::types::tool;
use crate::{Sight, StepError};

/// Creates a git command for the checkout.
pub(super) fn git(wish: &Wish, arguments: &[&str], sight: &Sight<'_>) -> Run {
    let reached = wish.reached.clone();
    let path = reached.unwrap_or_else(|| sight.path(&wish.path));
    let mut words: Vec<std::ffi::OsString> = vec!["git".into(), "-C".into(), path.into()];
    words.extend(arguments.iter().map(Into::into));
    prepared(wish, Run::new(words))
}

/// Disables prompts, and output that could reveal a password.
pub(super) fn prepared(wish: &Wish, run: Run) -> Run {
    let mut ssh = "ssh -o BatchMode=yes".to_owned();
    if let Some(identity) = &wish.identity {
        ssh.push_str(&format!(" -i '{}'", identity.replace('\'', "'\\''")));
    }
    let run = run
        .environment("GIT_TERMINAL_PROMPT", "0")
        .environment("GIT_ASKPASS", "/bin/false")
        .environment("SSH_ASKPASS", "/bin/false")
        .environment("GIT_SSH_COMMAND", ssh)
        .timeout(wish.timeout)
        .quiet();
    match &wish.user {
        Some(user) => run.user(user),
        None => run,
    }
}

/// Returns the error of git, without passwords.
pub(super) fn complaint(wish: &Wish, what: &str, done: &Done) -> StepError {
    let text = tool::complaint(what, done).chain();
    StepError::new(text.replace(&wish.source, &shown(&wish.source)))
}

fn ask(wish: &Wish, arguments: &[&str], sight: &Sight<'_>) -> Result<Option<String>, StepError> {
    let done = git(wish, arguments, sight).run(sight)?;
    let text = done.stdout_text().trim().to_owned();
    Ok((done.succeeded() && !text.is_empty()).then_some(text))
}

pub(super) fn observe(wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
    let path = sight.path(&wish.path);
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(Seen::Nothing);
    };
    if !metadata.is_dir() {
        return Ok(Seen::Other);
    }
    let empty = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
    if empty {
        return Ok(Seen::Nothing);
    }
    if wish.ensure == Ensure::Absent {
        return Ok(Seen::Other);
    }
    let inside = git(wish, &["rev-parse", "--absolute-git-dir"], sight).run(sight)?;
    if !inside.succeeded() {
        let said = inside.stderr_text();
        if said.contains("dubious ownership") {
            let message = format!(
                "{} belongs to another user: say whose it is with `user`",
                wish.path
            );
            return Err(StepError::new(message));
        }
        return Ok(Seen::Other);
    }
    // A directory inside another checkout is not a checkout itself.
    let real = path.canonicalize().unwrap_or(path);
    if !std::path::Path::new(inside.stdout_text().trim()).starts_with(&real) {
        return Ok(Seen::Other);
    }
    let status = ask(
        wish,
        &["status", "--porcelain", "--untracked-files=no"],
        sight,
    )?;
    Ok(Seen::Repository(Checkout {
        head: ask(
            wish,
            &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
            sight,
        )?,
        source: ask(
            wish,
            &["config", "--get", &format!("remote.{}.url", wish.remote)],
            sight,
        )?,
        wanted: wanted(wish, sight)?,
        dirty: status.is_some(),
    }))
}

fn wanted(wish: &Wish, sight: &Sight<'_>) -> Result<Option<String>, StepError> {
    match (wish.ensure, &wish.revision) {
        (Ensure::Latest, revision) => {
            match revision.as_deref().filter(|revision| is_commit(revision)) {
                Some(commit) => Ok(Some(commit.to_owned())),
                None => remote_tip(wish, sight).map(Some),
            }
        }
        (Ensure::Present, Some(revision)) => known(wish, revision, sight),
        _ => Ok(None),
    }
}

pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the commit of a revision among the objects fetched so far.
pub(super) fn known(
    wish: &Wish,
    revision: &str,
    sight: &Sight<'_>,
) -> Result<Option<String>, StepError> {
    let names = [
        format!("refs/remotes/{}/{revision}", wish.remote),
        format!("refs/tags/{revision}"),
        revision.to_owned(),
    ];
    // A name must not be mistaken for a commit, nor a local branch for the source's.
    let hexadecimal = revision.len() >= 7 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    let count = if hexadecimal { 3 } else { 2 };
    for name in names.iter().take(count) {
        let commit = format!("{name}^{{commit}}");
        let found = ask(wish, &["rev-parse", "--verify", "--quiet", &commit], sight)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Returns the current commit of the revision at the source.
fn remote_tip(wish: &Wish, sight: &Sight<'_>) -> Result<String, StepError> {
    let revision = wish.revision.as_deref().unwrap_or("HEAD");
    let peeled = format!("{revision}^{{}}");
    let words = ["git", "ls-remote", "--", &wish.source, revision, &peeled];
    let done = prepared(wish, Run::new(words)).run(sight)?;
    if !done.succeeded() {
        return Err(complaint(wish, "git ls-remote", &done));
    }
    tip(&done.stdout_text(), revision)
        .ok_or_else(|| StepError::new(format!("{} has no `{revision}`", shown(&wish.source))))
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
