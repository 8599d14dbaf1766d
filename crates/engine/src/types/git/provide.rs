//! Cloning, fetching and checking out.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::observe::{complaint, git, is_commit, known, observe, prepared};
use super::{Checkout, Ensure, Git, Seen, Wish, shown};
use crate::types::accounts;
use crate::types::exec::Run;
use crate::types::file::{land, place};
use crate::{Applied, Change, Hands, Observation, Provider, Sight, StepError};

impl Provider for Git {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        observe(desired, sight)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let (desired, observed, changes, hands) = step.parts();
        match (desired.ensure, observed) {
            (Ensure::Absent, _) => land::remove(&hands.path(&desired.path), hands)?,
            (_, Seen::Nothing) => clone(desired, hands)?,
            (_, Seen::Other) if desired.force => {
                land::remove(&hands.path(&desired.path), hands)?;
                clone(desired, hands)?;
            }
            (_, Seen::Other) => {
                let message = format!(
                    "{} holds something that is no checkout; `force` would replace it",
                    desired.path
                );
                return Err(StepError::new(message));
            }
            (_, Seen::Repository(found)) => {
                refuse_hostile_links(desired, hands)?;
                update(desired, found, changes, hands)?;
            }
        }
        Ok(Applied::default())
    }
}

/// Refuses a checkout that is reached through a link of another user.
fn refuse_hostile_links(wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    place::directory(&hands.path(&wish.path))
        .map(drop)
        .map_err(|error| StepError::because("the path cannot be used", error))
}

fn act(wish: &Wish, arguments: &[&str], hands: &Hands<'_>) -> Result<(), StepError> {
    let done = git(wish, arguments, hands).run(hands)?;
    let what = format!("git {}", arguments.first().unwrap_or(&""));
    if done.succeeded() {
        Ok(())
    } else {
        Err(complaint(wish, &what, &done))
    }
}

/// Clones beside the place and moves the clone there, so that an interrupted clone
/// leaves nothing that looks like a checkout.
fn clone(wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    let path = hands.path(&wish.path);
    let parent = path.parent().unwrap_or(Path::new("/"));
    let what = || format!("cannot create {}", path.display());
    let above =
        place::created_directory(parent).map_err(|error| StepError::because(what(), error))?;
    let name = path.file_name().unwrap_or_default();
    let beside = format!(
        ".{}.{}",
        name.to_string_lossy(),
        uuid::Uuid::new_v4().simple()
    );
    let cloned = clone_beside(wish, parent, &above, &beside, hands).and_then(|()| {
        let failed = |error: Errno| StepError::because(what(), std::io::Error::from(error));
        match unlinkat(&above, name, AtFlags::REMOVEDIR) {
            // An empty directory is replaced. A file or a link is not.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        renameat(&above, beside.as_str(), &above, name).map_err(failed)
    });
    if cloned.is_err() {
        let _ = land::remove(&parent.join(&beside), hands);
        return cloned;
    }
    hands.sync_directory_later(parent);
    Ok(())
}

/// Clones into a new directory in `above`, which is open at `parent`.
///
/// As root, git gets the open directory and not its name, as the owner of `parent`
/// could redirect the name. As another user it gets the name, and has only the access
/// of that user.
fn clone_beside(
    wish: &Wish,
    parent: &Path,
    above: &OwnedFd,
    beside: &str,
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    let failed = |error: Errno| {
        let what = format!("cannot create {}", parent.join(beside).display());
        StepError::because(what, std::io::Error::from(error))
    };
    mkdirat(above, beside, Mode::from_raw_mode(0o755)).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(above, beside, flags, Mode::empty()).map_err(failed)?;
    let Some(user) = &wish.user else {
        return clone_to(wish, &place::path_of(&directory), hands);
    };
    let account = accounts::find_user(hands, user)?;
    let account = account.ok_or_else(|| StepError::new(format!("there is no user `{user}`")))?;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    fchown(&directory, Some(uid), Some(gid)).map_err(failed)?;
    clone_to(wish, &parent.join(beside), hands)
}

fn clone_to(wish: &Wish, place: &Path, hands: &Hands<'_>) -> Result<(), StepError> {
    let mut words: Vec<String> = ["git", "clone", "--origin", &wish.remote]
        .map(str::to_owned)
        .to_vec();
    if wish.ensure == Ensure::Bare {
        words.push("--bare".to_owned());
    } else {
        words.push("--no-checkout".to_owned());
    }
    if let Some(depth) = wish.depth {
        words.push(format!("--depth={depth}"));
        if let Some(branch) = wish
            .revision
            .as_ref()
            .filter(|revision| !is_commit(revision))
        {
            words.push(format!("--branch={branch}"));
        }
    }
    let mut words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
    words.extend(["--".into(), (&wish.source).into(), place.into()]);
    let done = prepared(wish, Run::new(words)).run(hands)?;
    if !done.succeeded() {
        return Err(complaint(wish, "git clone", &done));
    }
    if wish.ensure == Ensure::Bare {
        return remember_source(wish, place, hands);
    }
    let there = Wish {
        path: wish.path.clone(),
        reached: Some(place.to_owned()),
        source: wish.source.clone(),
        remote: wish.remote.clone(),
        revision: wish.revision.clone(),
        user: wish.user.clone(),
        identity: wish.identity.clone(),
        ..*wish
    };
    check_out(&there, None, hands)
}

/// Records the source of a bare clone under our name for it as well.
fn remember_source(wish: &Wish, place: &Path, hands: &Hands<'_>) -> Result<(), StepError> {
    let key = format!("remote.{}.url", wish.remote);
    let words = [
        "git".into(),
        "-C".into(),
        place.as_os_str().to_owned(),
        "config".into(),
        key.into(),
        (&wish.source).into(),
    ];
    let done = prepared(wish, Run::new(words)).run(hands)?;
    if done.succeeded() {
        Ok(())
    } else {
        Err(complaint(wish, "git config", &done))
    }
}

fn update(
    wish: &Wish,
    found: &Checkout,
    changes: &[Change],
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    if changes.iter().any(|change| change.property == "source") {
        let verb = if found.source.is_some() {
            "set-url"
        } else {
            "add"
        };
        act(wish, &["remote", verb, &wish.remote, &wish.source], hands)?;
    }
    let moves = changes.iter().any(|change| change.property == "revision");
    if moves {
        if found.dirty && !wish.force {
            let message = format!(
                "{} has changes of its own; `force` would give them up",
                wish.path
            );
            return Err(StepError::new(message));
        }
        let known = match &wish.revision {
            Some(revision) if wish.ensure == Ensure::Present => known(wish, revision, hands)?,
            _ => None,
        };
        if known.is_none() {
            let mut arguments = vec!["fetch", "--tags", "--force", "--prune"];
            let depth = wish.depth.map(|depth| format!("--depth={depth}"));
            arguments.extend(depth.as_deref());
            arguments.push(&wish.remote);
            act(wish, &arguments, hands)?;
        }
    }
    if moves || changes.iter().any(|change| change.property == "content") {
        check_out(wish, Some(found), hands)?;
    }
    Ok(())
}

/// Checks out the revision: a branch as that branch, anything else as a detached commit.
fn check_out(wish: &Wish, found: Option<&Checkout>, hands: &Hands<'_>) -> Result<(), StepError> {
    let force: &[&str] = if wish.force || found.is_none() {
        &["--force"]
    } else {
        &[]
    };
    let branch = match &wish.revision {
        Some(revision) => Some(revision.clone()),
        None => default_branch(wish, hands)?,
    };
    let Some(branch) = branch else {
        // An empty repository has nothing to check out.
        return Ok(());
    };
    let remote = format!("refs/remotes/{}/{branch}", wish.remote);
    let is_branch = git(wish, &["rev-parse", "--verify", "--quiet", &remote], hands)
        .run(hands)?
        .succeeded();
    if is_branch {
        if found.is_some() && !wish.force {
            keep_own_commits(wish, &branch, &remote, hands)?;
        }
        let mut arguments = vec!["checkout", "--quiet"];
        arguments.extend(force);
        arguments.extend(["-B", &branch, &remote, "--"]);
        act(wish, &arguments, hands)?;
    } else {
        let commit = known(wish, &branch, hands)?
            .ok_or_else(|| StepError::new(format!("{} has no `{branch}`", shown(&wish.source))))?;
        let mut arguments = vec!["checkout", "--quiet", "--detach"];
        arguments.extend(force);
        arguments.extend([commit.as_str(), "--"]);
        act(wish, &arguments, hands)?;
    }
    if wish.submodules {
        act(
            wish,
            &["submodule", "update", "--quiet", "--init", "--recursive"],
            hands,
        )?;
    }
    Ok(())
}

/// Refuses to lose commits that only the local branch has.
fn keep_own_commits(
    wish: &Wish,
    branch: &str,
    remote: &str,
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    let local = format!("refs/heads/{branch}");
    let own = git(
        wish,
        &[
            "rev-list",
            "--max-count=1",
            &local,
            &format!("^{remote}"),
            "--",
        ],
        hands,
    )
    .run(hands)?;
    if own.succeeded() && !own.stdout_text().trim().is_empty() {
        let message = format!(
            "the branch `{branch}` in {} has commits of its own; `force` would give them up",
            wish.path
        );
        return Err(StepError::new(message));
    }
    Ok(())
}

fn default_branch(wish: &Wish, hands: &Hands<'_>) -> Result<Option<String>, StepError> {
    let head = format!("refs/remotes/{}/HEAD", wish.remote);
    let done = git(wish, &["symbolic-ref", "--quiet", &head], hands).run(hands)?;
    let text = done.stdout_text();
    let name = text
        .trim()
        .strip_prefix(&format!("refs/remotes/{}/", wish.remote));
    Ok(name.map(str::to_owned))
}
