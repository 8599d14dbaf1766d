//! Cloning, fetching and checking out.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::observe::{complaint, git, is_commit, known, observe, prepared};
use super::{Checkout, DesiredCheckout, Ensure, Git, ObservedCheckout, shown};
use crate::types::accounts;
use crate::types::exec::Run;
use crate::types::file::{land, place};
use crate::{ApplyResult, Change, Observation, Provider, ReadAccess, StepError, WriteAccess};

impl Provider for Git {
    fn observe(
        &self,
        desired: &DesiredCheckout,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedCheckout, StepError> {
        observe(desired, access)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        match (desired.ensure, observed) {
            (Ensure::Absent, _) => land::remove(&write_access.path(&desired.path), write_access)?,
            (_, ObservedCheckout::Nothing) => clone(desired, write_access)?,
            (_, ObservedCheckout::Other) if desired.force => {
                land::remove(&write_access.path(&desired.path), write_access)?;
                clone(desired, write_access)?;
            }
            (_, ObservedCheckout::Other) => {
                let message = format!(
                    "{} is not a checkout; set `force` to replace it",
                    desired.path
                );
                return Err(StepError::new(message));
            }
            (_, ObservedCheckout::Repository(found)) => {
                refuse_hostile_links(desired, write_access)?;
                update(desired, found, changes, write_access)?;
            }
        }
        Ok(ApplyResult::default())
    }
}

/// Refuses a checkout that is reached through a link of another user.
fn refuse_hostile_links(
    desired: &DesiredCheckout,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    place::directory(&write_access.path(&desired.path))
        .map(drop)
        .map_err(|error| StepError::because("the path is not usable", error))
}

fn act(
    desired: &DesiredCheckout,
    arguments: &[&str],
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let done = git(desired, arguments, write_access).run(write_access)?;
    let what = format!("git {}", arguments.first().unwrap_or(&""));
    if done.succeeded() {
        Ok(())
    } else {
        Err(complaint(desired, &what, &done))
    }
}

/// Clones beside the place and moves the clone there, so that an interrupted clone
/// leaves nothing that looks like a checkout.
fn clone(desired: &DesiredCheckout, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let path = write_access.path(&desired.path);
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
    let cloned = clone_beside(desired, parent, &above, &beside, write_access).and_then(|()| {
        let failed = |error: Errno| StepError::because(what(), std::io::Error::from(error));
        match unlinkat(&above, name, AtFlags::REMOVEDIR) {
            // An empty directory is replaced. A file or a link is not.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        renameat(&above, beside.as_str(), &above, name).map_err(failed)
    });
    if cloned.is_err() {
        let _ = land::remove(&parent.join(&beside), write_access);
        return cloned;
    }
    write_access.sync_directory_later(parent);
    Ok(())
}

/// Clones into a new directory in `above`, which is open at `parent`.
///
/// As root, git gets the open directory and not its name, as the owner of `parent`
/// could redirect the name. As another user it gets the name, and has only the access
/// of that user.
fn clone_beside(
    desired: &DesiredCheckout,
    parent: &Path,
    above: &OwnedFd,
    beside: &str,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let failed = |error: Errno| {
        let what = format!("cannot create {}", parent.join(beside).display());
        StepError::because(what, std::io::Error::from(error))
    };
    mkdirat(above, beside, Mode::from_raw_mode(0o755)).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(above, beside, flags, Mode::empty()).map_err(failed)?;
    let Some(user) = &desired.user else {
        return clone_to(desired, &place::path_of(&directory), write_access);
    };
    let account = accounts::find_user(write_access, user)?;
    let account = account.ok_or_else(|| StepError::new(format!("no user `{user}`")))?;
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    fchown(&directory, Some(uid), Some(gid)).map_err(failed)?;
    clone_to(desired, &parent.join(beside), write_access)
}

fn clone_to(
    desired: &DesiredCheckout,
    place: &Path,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut words: Vec<String> = ["git", "clone", "--origin", &desired.remote]
        .map(str::to_owned)
        .to_vec();
    if desired.ensure == Ensure::Bare {
        words.push("--bare".to_owned());
    } else {
        words.push("--no-checkout".to_owned());
    }
    if let Some(depth) = desired.depth {
        words.push(format!("--depth={depth}"));
        if let Some(branch) = desired
            .revision
            .as_ref()
            .filter(|revision| !is_commit(revision))
        {
            words.push(format!("--branch={branch}"));
        }
    }
    let mut words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
    words.extend(["--".into(), (&desired.source).into(), place.into()]);
    let done = prepared(desired, Run::new(words)).run(write_access)?;
    if !done.succeeded() {
        return Err(complaint(desired, "git clone", &done));
    }
    if desired.ensure == Ensure::Bare {
        return remember_source(desired, place, write_access);
    }
    let there = DesiredCheckout {
        path: desired.path.clone(),
        reached: Some(place.to_owned()),
        source: desired.source.clone(),
        remote: desired.remote.clone(),
        revision: desired.revision.clone(),
        user: desired.user.clone(),
        identity: desired.identity.clone(),
        ..*desired
    };
    check_out(&there, None, write_access)
}

/// Records the source of a bare clone under our name for it as well.
fn remember_source(
    desired: &DesiredCheckout,
    place: &Path,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let key = format!("remote.{}.url", desired.remote);
    let words = [
        "git".into(),
        "-C".into(),
        place.as_os_str().to_owned(),
        "config".into(),
        key.into(),
        (&desired.source).into(),
    ];
    let done = prepared(desired, Run::new(words)).run(write_access)?;
    if done.succeeded() {
        Ok(())
    } else {
        Err(complaint(desired, "git config", &done))
    }
}

fn update(
    desired: &DesiredCheckout,
    found: &Checkout,
    changes: &[Change],
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if changes.iter().any(|change| change.property == "source") {
        let verb = if found.source.is_some() {
            "set-url"
        } else {
            "add"
        };
        act(
            desired,
            &["remote", verb, &desired.remote, &desired.source],
            write_access,
        )?;
    }
    let moves = changes.iter().any(|change| change.property == "revision");
    if moves {
        if found.dirty && !desired.force {
            let message = format!(
                "{} has local changes; set `force` to discard them",
                desired.path
            );
            return Err(StepError::new(message));
        }
        let known = match &desired.revision {
            Some(revision) if desired.ensure == Ensure::Present => {
                known(desired, revision, write_access)?
            }
            _ => None,
        };
        if known.is_none() {
            let mut arguments = vec!["fetch", "--tags", "--force", "--prune"];
            let depth = desired.depth.map(|depth| format!("--depth={depth}"));
            arguments.extend(depth.as_deref());
            arguments.push(&desired.remote);
            act(desired, &arguments, write_access)?;
        }
    }
    if moves || changes.iter().any(|change| change.property == "content") {
        check_out(desired, Some(found), write_access)?;
    }
    Ok(())
}

/// Checks out the revision: a branch as that branch, anything else as a detached commit.
fn check_out(
    desired: &DesiredCheckout,
    found: Option<&Checkout>,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let force: &[&str] = if desired.force || found.is_none() {
        &["--force"]
    } else {
        &[]
    };
    let branch = match &desired.revision {
        Some(revision) => Some(revision.clone()),
        None => default_branch(desired, write_access)?,
    };
    let Some(branch) = branch else {
        // An empty repository has nothing to check out.
        return Ok(());
    };
    let remote = format!("refs/remotes/{}/{branch}", desired.remote);
    let is_branch = git(
        desired,
        &["rev-parse", "--verify", "--quiet", &remote],
        write_access,
    )
    .run(write_access)?
    .succeeded();
    if is_branch {
        if found.is_some() && !desired.force {
            keep_own_commits(desired, &branch, &remote, write_access)?;
        }
        let mut arguments = vec!["checkout", "--quiet"];
        arguments.extend(force);
        arguments.extend(["-B", &branch, &remote, "--"]);
        act(desired, &arguments, write_access)?;
    } else {
        let commit = known(desired, &branch, write_access)?.ok_or_else(|| {
            StepError::new(format!("{} has no `{branch}`", shown(&desired.source)))
        })?;
        let mut arguments = vec!["checkout", "--quiet", "--detach"];
        arguments.extend(force);
        arguments.extend([commit.as_str(), "--"]);
        act(desired, &arguments, write_access)?;
    }
    if desired.submodules {
        act(
            desired,
            &["submodule", "update", "--quiet", "--init", "--recursive"],
            write_access,
        )?;
    }
    Ok(())
}

/// Refuses to lose commits that only the local branch has.
fn keep_own_commits(
    desired: &DesiredCheckout,
    branch: &str,
    remote: &str,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let local = format!("refs/heads/{branch}");
    let own = git(
        desired,
        &[
            "rev-list",
            "--max-count=1",
            &local,
            &format!("^{remote}"),
            "--",
        ],
        write_access,
    )
    .run(write_access)?;
    if own.succeeded() && !own.stdout_text().trim().is_empty() {
        let message = format!(
            "the branch `{branch}` in {} has local commits; set `force` to discard them",
            desired.path
        );
        return Err(StepError::new(message));
    }
    Ok(())
}

fn default_branch(
    desired: &DesiredCheckout,
    write_access: &WriteAccess<'_>,
) -> Result<Option<String>, StepError> {
    let head = format!("refs/remotes/{}/HEAD", desired.remote);
    let done = git(desired, &["symbolic-ref", "--quiet", &head], write_access).run(write_access)?;
    let text = done.stdout_text();
    let name = text
        .trim()
        .strip_prefix(&format!("refs/remotes/{}/", desired.remote));
    Ok(name.map(str::to_owned))
}
