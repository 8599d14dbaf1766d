//! The user that the agent runs as, and its search path.

use serde_json::{Value, json};

use super::group::{Facts, GroupError, put, single};
use super::machine::Machine;
use super::warning::FactWarning;

pub(super) fn collect(machine: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let uid = rustix::process::getuid().as_raw();
    let user = user(machine, uid);
    let gid = user
        .as_ref()
        .map_or_else(|| rustix::process::getgid().as_raw(), |user| user.1);
    let mut identity = Facts::new();
    put(&mut identity, "uid", Some(uid));
    put(&mut identity, "gid", Some(gid));
    put(&mut identity, "privileged", Some(uid == 0));
    put(&mut identity, "user", user.map(|user| user.0));
    put(&mut identity, "group", group(machine, gid));
    Ok(single("identity", Value::Object(identity)))
}

pub(super) fn collect_path(_: &Machine, _: &mut Vec<FactWarning>) -> Result<Facts, GroupError> {
    let path = std::env::var_os("PATH").map(|path| json!(path.to_string_lossy()));
    Ok(path.map_or_else(Facts::new, |path| single("path", path)))
}

/// Returns a user's name and primary group. It reads the files first, then asks the sources that
/// the machine is configured to use (a directory service, for example).
fn user(machine: &Machine, uid: u32) -> Option<(String, u32)> {
    let passwd = machine.optional("/etc/passwd").unwrap_or_default();
    user_in(&passwd, uid).or_else(|| {
        let user = machine.is_live().then(|| uzers::get_user_by_uid(uid))??;
        let name = user.name().to_string_lossy().into_owned();
        Some((name, user.primary_group_id()))
    })
}

fn group(machine: &Machine, gid: u32) -> Option<String> {
    let groups = machine.optional("/etc/group").unwrap_or_default();
    group_in(&groups, gid).or_else(|| {
        let group = machine.is_live().then(|| uzers::get_group_by_gid(gid))??;
        Some(group.name().to_string_lossy().into_owned())
    })
}

fn user_in(passwd: &str, uid: u32) -> Option<(String, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        (found == uid).then(|| (name.to_owned(), group))
    })
}

fn group_in(groups: &str, gid: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        (found == gid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_number() {
        let passwd =
            "broken\n+::::::\nroot:x:0:0:root:/root:/bin/sh\nada:x:1000:100::/home/ada:/bin/sh\n";
        assert_eq!(user_in(passwd, 1000), Some(("ada".to_owned(), 100)));
        assert_eq!(user_in(passwd, 5), None);
        assert_eq!(
            group_in("root:x:0:\nusers:x:100:ada\n", 100),
            Some("users".to_owned())
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "([a-z0-9:]{0,12}\n){0,4}", number: u32) {
            user_in(&text, number);
            group_in(&text, number);
        }
    }
}
