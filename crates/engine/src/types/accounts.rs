//! The account databases as text: `passwd`, `group` and `shadow`.
//!
//! Below another root the files are read directly. On the machine itself the name
//! service is queried if a name may come from elsewhere.

use std::path::{Path, PathBuf};

use super::config_file;
use crate::{ReadAccess, StepError, SystemObject};

/// A line of `/etc/passwd`.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) comment: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// A line of `/etc/group`.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct GroupEntry {
    pub(crate) name: String,
    pub(crate) gid: u32,
    pub(crate) members: Vec<String>,
}

/// A user's entry in `/etc/shadow`.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Shadow {
    pub(crate) password: String,
    /// The day on which the account expires, in days since 1970.
    pub(crate) expires: Option<i64>,
}

pub(crate) fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    fields.next()?;
    Some(Account {
        name,
        uid: fields.next()?.parse().ok()?,
        gid: fields.next()?.parse().ok()?,
        comment: fields.next()?.to_owned(),
        home: fields.next()?.to_owned(),
        shell: fields.next().unwrap_or_default().to_owned(),
    })
}

pub(crate) fn parse_group(line: &str) -> Option<GroupEntry> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    fields.next()?;
    Some(GroupEntry {
        name,
        gid: fields.next()?.parse().ok()?,
        members: (fields.next().unwrap_or_default().split(','))
            .filter(|member| !member.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

fn parse_shadow(line: &str, name: &str) -> Option<Shadow> {
    let fields: Vec<&str> = line.split(':').collect();
    (fields.first() == Some(&name)).then(|| Shadow {
        password: fields.get(1).copied().unwrap_or_default().to_owned(),
        expires: fields.get(7).and_then(|days| days.parse().ok()),
    })
}

fn entries<T>(
    access: &ReadAccess<'_>,
    file: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, StepError> {
    let content = config_file::read(&access.path(file))?.unwrap_or_default();
    Ok(config_file::lines(&content)
        .filter_map(|line| parse(&config_file::text(line)))
        .collect())
}

pub(crate) fn accounts(access: &ReadAccess<'_>) -> Result<Vec<Account>, StepError> {
    entries(access, "/etc/passwd", parse_account)
}

pub(crate) fn groups(access: &ReadAccess<'_>) -> Result<Vec<GroupEntry>, StepError> {
    entries(access, "/etc/group", parse_group)
}

pub(crate) fn shadow(access: &ReadAccess<'_>, name: &str) -> Result<Option<Shadow>, StepError> {
    let found = entries(access, "/etc/shadow", |line| parse_shadow(line, name))?;
    Ok(found.into_iter().next())
}

/// Finds a user of the machine, even one that only the name service knows.
pub(crate) fn find_user(access: &ReadAccess<'_>, name: &str) -> Result<Option<Account>, StepError> {
    let known = accounts(access)?;
    if let Some(found) = known.into_iter().find(|account| account.name == name) {
        return Ok(Some(found));
    }
    if access.root().is_some() {
        return Ok(None);
    }
    Ok(uzers::get_user_by_name(name).map(|user| {
        let home: PathBuf = uzers::os::unix::UserExt::home_dir(&user).to_owned();
        Account {
            name: name.to_owned(),
            uid: user.uid(),
            gid: user.primary_group_id(),
            comment: String::new(),
            home: home.to_string_lossy().into_owned(),
            shell: String::new(),
        }
    }))
}

/// Returns a group's ID, given its name or the ID itself.
pub(crate) fn find_gid(access: &ReadAccess<'_>, group: &str) -> Result<Option<u32>, StepError> {
    if let Ok(gid) = group.parse() {
        return Ok(Some(gid));
    }
    let known = groups(access)?;
    if let Some(found) = known.into_iter().find(|entry| entry.name == group) {
        return Ok(Some(found.gid));
    }
    if access.root().is_some() {
        return Ok(None);
    }
    Ok(uzers::get_group_by_name(group).map(|group| group.gid()))
}

/// Returns the arguments that make an account tool work on another root.
pub(crate) fn prefix(root: Option<&Path>) -> Vec<std::ffi::OsString> {
    root.map_or_else(Vec::new, |root| vec!["--prefix".into(), root.into()])
}

/// Returns the thing that orders removals. A group cannot be removed before the users
/// whose primary group it is. So removals of users provide it, and removals of groups
/// need it.
pub(crate) fn user_removals() -> SystemObject {
    SystemObject::Other("removals", "users".to_owned())
}

/// Returns true for a name that the tools accept, and that cannot be mistaken for an
/// option or break a line of the files.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && !name.starts_with('-')
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || ":,/".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_line_is_read_or_left_alone(line: String) {
            let _ = (parse_account(&line), parse_group(&line), parse_shadow(&line, "x"));
        }
    }

    #[test]
    fn names_that_would_break_a_line_are_invalid() {
        assert!(is_name("www-data") && is_name("a.b$"));
        for name in ["", "-r", "a:b", "a b", "a\nroot", "a,b", "../x"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
