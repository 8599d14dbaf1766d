//! Observing and changing accounts with the system's tools.

use std::ffi::OsString;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{DesiredUser, ObservedUser, User, desired};
use crate::types::exec::Run;
use crate::types::file::place;
use crate::types::{accounts, tool};
use crate::{ApplyResult, Change, Observation, Provider, ReadAccess, StepError, WriteAccess};

impl Provider for User {
    fn observe(
        &self,
        desired: &DesiredUser,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedUser, StepError> {
        let known = accounts::accounts(access)?;
        let account = known
            .into_iter()
            .find(|account| account.name == desired.name);
        let Some(account) = account else {
            return Ok(ObservedUser::default());
        };
        let mut groups: Vec<String> = (accounts::groups(access)?.into_iter())
            .filter(|group| group.members.contains(&desired.name))
            .map(|group| group.name)
            .collect();
        groups.sort();
        let wanted_gid = match &desired.group {
            Some(group) => accounts::find_gid(access, group)?,
            None => None,
        };
        Ok(ObservedUser {
            shadow: accounts::shadow(access, &desired.name)?.unwrap_or_default(),
            groups,
            wanted_gid,
            home_exists: access.path(&account.home).is_dir(),
            account: Some(account),
        })
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        match (desired.present, &observed.account) {
            (false, _) => {
                let remove = desired.manage_home.then_some("--remove");
                command("userdel", remove.map(OsString::from), desired, write_access)?;
            }
            (true, None) => add(desired, write_access)?,
            (true, Some(_)) => modify(desired, observed, changes, write_access)?,
        }
        Ok(ApplyResult::default())
    }
}

fn add(desired: &DesiredUser, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let mut options = Options::default();
    options.pair("--uid", desired.uid.map(|uid| uid.to_string()));
    options.pair("--gid", desired.group.clone());
    options.pair(
        "--groups",
        desired
            .groups
            .as_ref()
            .map(|groups| groups.join(","))
            .filter(|list| !list.is_empty()),
    );
    options.pair("--home-dir", desired.home.clone());
    options.pair("--shell", desired.shell.clone());
    options.pair("--comment", desired.comment.clone());
    options.pair(
        "--expiredate",
        desired
            .expiry
            .flatten()
            .map(|days| desired::date(Some(days))),
    );
    options.flag(desired.system, "--system");
    options.flag(desired.duplicate && desired.uid.is_some(), "--non-unique");
    let home = if desired.manage_home {
        "--create-home"
    } else {
        "--no-create-home"
    };
    options.flag(true, home);
    command("useradd", options.0, desired, write_access)?;
    match &desired.password {
        Some(hash) => set_password(desired, hash, write_access),
        None => Ok(()),
    }
}

fn modify(
    desired: &DesiredUser,
    observed: &ObservedUser,
    changes: &[Change],
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut options = Options::default();
    for change in changes {
        match change.property.as_str() {
            "uid" => {
                options.pair("--uid", desired.uid.map(|uid| uid.to_string()));
                options.flag(desired.duplicate, "--non-unique");
            }
            "gid" => options.pair("--gid", desired.group.clone()),
            "comment" => options.pair("--comment", desired.comment.clone()),
            "home" => {
                options.pair("--home", desired.home.clone());
                options.flag(desired.manage_home && observed.home_exists, "--move-home");
            }
            "shell" => options.pair("--shell", desired.shell.clone()),
            "groups" => {
                let groups = desired.groups_from(&observed.groups);
                options.pair("--groups", Some(groups.join(",")));
            }
            "expiry" => {
                let day = desired
                    .expiry
                    .flatten()
                    .map(|days| desired::date(Some(days)));
                options.pair("--expiredate", Some(day.unwrap_or_default()));
            }
            _ => {}
        }
    }
    if !options.0.is_empty() {
        command("usermod", options.0, desired, write_access)?;
    }
    for change in changes {
        match (change.property.as_str(), &desired.password) {
            ("password", Some(hash)) => set_password(desired, hash, write_access)?,
            ("home_directory", _) => make_home(desired, observed, write_access)?,
            _ => {}
        }
    }
    Ok(())
}

/// Creates the home of an account that lost it, or never had one. `mkhomedir_helper` is
/// not available everywhere and `useradd` refuses existing accounts. So the skeleton is
/// copied into a directory that did not exist, as no other user can have prepared it.
fn make_home(
    desired: &DesiredUser,
    observed: &ObservedUser,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let account = observed
        .account
        .as_ref()
        .expect("only an account can lack its home");
    let home = write_access.path(desired.home.as_ref().unwrap_or(&account.home));
    let failed = |error: std::io::Error| {
        StepError::because(format!("cannot create {}", home.display()), error)
    };
    let above = place::created_directory(home.parent().unwrap_or(Path::new("/")))
        .map_err(|error| StepError::because(format!("cannot create {}", home.display()), error))?;
    let name = home.file_name().unwrap_or_default();
    let skeleton = write_access.path("/etc/skel");
    let owner = format!(
        "{}:{}",
        desired.uid.unwrap_or(account.uid),
        observed.wanted_gid.unwrap_or(account.gid)
    );
    let made = rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755))
        .and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(&above, name, flags, Mode::empty())
        })
        .map_err(|error| failed(error.into()))?;
    // Through the open directory: its name may lead elsewhere at this point.
    let home = place::path_of(&made).join(".");
    if skeleton.is_dir() {
        let words = [
            "cp".into(),
            "-rT".into(),
            "--".into(),
            skeleton.into_os_string(),
            home.clone().into(),
        ];
        tool::act(&Run::new(words), "cp", write_access)?;
    }
    let words = [
        "chown".into(),
        "-hR".into(),
        OsString::from(owner),
        "--".into(),
        home.into_os_string(),
    ];
    tool::act(&Run::new(words), "chown", write_access).map(drop)
}

fn set_password(
    desired: &DesiredUser,
    hash: &str,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut words: Vec<OsString> = vec!["chpasswd".into(), "--encrypted".into()];
    if let Some(root) = write_access.root() {
        words.extend(["--root".into(), root.into()]);
    }
    let run = Run::new(words)
        .stdin(format!("{}:{hash}\n", desired.name))
        .quiet();
    tool::act(&run, "chpasswd", write_access).map(drop)
}

fn command(
    program: &str,
    options: impl IntoIterator<Item = OsString>,
    desired: &DesiredUser,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut words = vec![program.into()];
    match write_access.root() {
        // With a prefix, `usermod --gid` looks for the group outside of it.
        Some(root) if program == "usermod" => words.extend(["--root".into(), root.into()]),
        root => words.extend(accounts::prefix(root)),
    }
    words.extend(options);
    words.push((&desired.name).into());
    tool::act(&Run::new(words), program, write_access).map(drop)
}

#[derive(Default)]
struct Options(Vec<OsString>);

impl Options {
    fn pair(&mut self, option: &str, value: Option<String>) {
        if let Some(value) = value {
            self.0.extend([option.into(), value.into()]);
        }
    }

    fn flag(&mut self, given: bool, option: &str) {
        if given {
            self.0.push(option.into());
        }
    }
}
