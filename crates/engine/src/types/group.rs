//! `group`: a group of users.

use serde_json::json;

use super::accounts::{self, GroupEntry};
use super::exec::Run;
use super::{presence, tool};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    Relations, ResourceType, StateFunction, StepError, SystemObject, TypeSpec, WriteAccess,
};

pub(crate) struct Group;

static SPEC: TypeSpec = TypeSpec {
    name: "group",
    aliases: &[],
    summary: "A group of users.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter("gid", "the numeric id; chosen by the system by default"),
        parameter("members", "the members of the group"),
        parameter(
            "auth_membership",
            "true: exactly `members`; false (the default in Puppet catalogs): at least `members`",
        ),
        parameter("addusers", "users to add to the group"),
        parameter("delusers", "users to remove from the group"),
        parameter("system", "true: use an id from the system range"),
        parameter("allowdupe", "true: allow an id that is already in use"),
        parameter(
            "forcelocal",
            "accepted for compatibility with Puppet: groups are always local",
        ),
    ],
    states: &[
        StateFunction {
            function: "group.present",
            implies: &[("ensure", "present"), ("auth_membership", "true")],
            arguments: &[argument("non_unique", "allowdupe")],
        },
        StateFunction {
            function: "group.absent",
            implies: &[("ensure", "absent")],
            arguments: &[],
        },
    ],
    example: r#"[{"type": "Group", "title": "deploy", "parameters": {"gid": 1500}}]"#,
};

pub(crate) struct DesiredGroup {
    name: String,
    present: bool,
    gid: Option<u32>,
    members: Option<Vec<String>>,
    /// True if `members` is the complete list.
    only: bool,
    added: Vec<String>,
    removed: Vec<String>,
    system: bool,
    duplicate: bool,
}

impl DesiredGroup {
    /// Returns the desired members, sorted.
    fn members(&self, old: &[String]) -> Vec<String> {
        let mut members: Vec<String> = match &self.members {
            Some(members) if self.only => members.clone(),
            Some(members) => old.iter().chain(members).cloned().collect(),
            None => old.to_vec(),
        };
        members.extend(self.added.iter().cloned());
        members.retain(|member| !self.removed.contains(member));
        members.sort();
        members.dedup();
        members
    }
}

impl ResourceType for Group {
    type Desired = DesiredGroup;
    type Observed = Option<GroupEntry>;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredGroup, Refusal> {
        let name = declaration.name()?;
        let names = |parameter| -> Result<Option<Vec<String>>, Refusal> {
            match declaration.texts(parameter)? {
                Some(names) if names.iter().any(|name| !accounts::is_name(name)) => {
                    Err(declaration.refuse(parameter, "names of users"))
                }
                names => Ok(names),
            }
        };
        if !accounts::is_name(&name) {
            return Err(Refusal::other(format!(
                "`{name}` is not a valid group name"
            )));
        }
        declaration.boolean("forcelocal")?;
        Ok(DesiredGroup {
            name,
            present: presence::present(declaration)?,
            gid: (declaration.integer("gid")?)
                .map(|gid| u32::try_from(gid).map_err(|_| declaration.refuse("gid", "a number")))
                .transpose()?,
            members: names("members")?,
            only: declaration.boolean("auth_membership")?.unwrap_or(false),
            added: names("addusers")?.unwrap_or_default(),
            removed: names("delusers")?.unwrap_or_default(),
            system: declaration.boolean("system")?.unwrap_or(false),
            duplicate: declaration.boolean("allowdupe")?.unwrap_or(false),
        })
    }

    fn changes(&self, desired: &DesiredGroup, observed: &Option<GroupEntry>) -> Vec<Change> {
        let mut changes = Vec::new();
        match (desired.present, observed) {
            (false, None) => return changes,
            (false, Some(_)) => {
                return vec![Change::new("ensure", json!("present"), json!("absent"))];
            }
            (true, None) => changes.push(Change::new(
                "ensure",
                DisplayValue::Absent,
                json!("present"),
            )),
            (true, Some(old)) => {
                if let Some(gid) = desired.gid.filter(|gid| *gid != old.gid) {
                    changes.push(Change::new("gid", json!(old.gid), json!(gid)));
                }
            }
        }
        let mut old = observed
            .as_ref()
            .map(|old| old.members.clone())
            .unwrap_or_default();
        let new = desired.members(&old);
        old.sort();
        if new != old {
            changes.push(Change::new("members", json!(old), json!(new)));
        }
        changes
    }

    fn relations(&self, desired: &DesiredGroup, relations: &mut Relations) {
        if !desired.present {
            relations.genius_needs(accounts::user_removals(), "whose group it may be");
            return;
        }
        relations.provides(SystemObject::Group(desired.name.clone()));
        // A user's own group exists before the user. So this relation is dropped in
        // favour of the user's need of the group if both are declared.
        for member in desired.members.iter().flatten().chain(&desired.added) {
            relations.needs(SystemObject::User(member.clone()), "its member");
        }
    }
}

impl Provider for Group {
    fn observe(
        &self,
        desired: &DesiredGroup,
        access: &ReadAccess<'_>,
    ) -> Result<Option<GroupEntry>, StepError> {
        let known = accounts::groups(access)?;
        Ok(known.into_iter().find(|group| group.name == desired.name))
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        for change in changes {
            match (change.property.as_str(), desired.present) {
                ("ensure", true) => add(desired, write_access)?,
                ("ensure", false) => command("groupdel", &[], desired, write_access)?,
                ("gid", _) => {
                    let gid = desired.gid.unwrap_or_default().to_string();
                    let mut options = vec!["--gid".to_owned(), gid];
                    if desired.duplicate {
                        options.push("--non-unique".to_owned());
                    }
                    command("groupmod", &options, desired, write_access)?;
                }
                _ => {
                    let old = observed.as_ref().map(|old| old.members.as_slice());
                    set_members(
                        desired,
                        &desired.members(old.unwrap_or_default()),
                        write_access,
                    )?;
                }
            }
        }
        Ok(ApplyResult::default())
    }
}

fn add(desired: &DesiredGroup, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let mut options = Vec::new();
    if let Some(gid) = desired.gid {
        options.extend(["--gid".to_owned(), gid.to_string()]);
    }
    if desired.duplicate {
        options.push("--non-unique".to_owned());
    }
    if desired.system {
        options.push("--system".to_owned());
    }
    command("groupadd", &options, desired, write_access)
}

fn set_members(
    desired: &DesiredGroup,
    members: &[String],
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let list = members.join(",");
    if write_access.root().is_some() {
        // `gpasswd` cannot work below a prefix.
        return command(
            "groupmod",
            &["--users".to_owned(), list],
            desired,
            write_access,
        );
    }
    let words = ["gpasswd", "--members", &list, &desired.name];
    tool::act(&Run::new(words).quiet(), "gpasswd", write_access).map(drop)
}

fn command(
    program: &str,
    options: &[String],
    desired: &DesiredGroup,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let mut words = vec![program.into()];
    words.extend(accounts::prefix(write_access.root()));
    words.extend(options.iter().map(Into::into));
    words.push((&desired.name).into());
    tool::act(&Run::new(words), program, write_access).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::testing_root::Machine;
    use super::*;
    use expect_test::expect;

    fn machine() -> Machine {
        let machine = Machine::new();
        machine.write(
            "/etc/passwd",
            "ada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n",
        );
        machine.write("/etc/shadow", "ada:!:1::::::\nbob:!:1::::::\n");
        machine.write("/etc/group", "users:x:100:\n");
        machine.write("/etc/gshadow", "users:!::\n");
        machine
    }

    #[test]
    fn a_group_is_made_changed_and_removed() {
        let machine = machine();
        let transcript = machine.converges(json!([{"type": "Group", "title": "deploy",
            "parameters": {"gid": 1500, "members": ["bob", "ada"]}}]));
        expect![[r#"
            Group[deploy] changed
              ensure: - -> present
              members: [] -> ["ada","bob"]
        "#]]
        .assert_eq(&transcript);
        assert!(
            machine
                .read("/etc/group")
                .contains("deploy:x:1500:ada,bob\n")
        );
        let transcript = machine.converges(json!([{"type": "Group", "title": "deploy",
            "parameters": {"gid": 1501, "members": "ada", "auth_membership": true}}]));
        expect![[r#"
            Group[deploy] changed
              gid: 1500 -> 1501
              members: ["ada","bob"] -> ["ada"]
        "#]]
        .assert_eq(&transcript);
        machine.converges(
            json!([{"type": "Group", "title": "deploy", "parameters": {"ensure": "absent"}}]),
        );
        assert_eq!(machine.read("/etc/group"), "users:x:100:\n");
    }

    #[test]
    fn a_number_that_is_taken_fails_and_says_so() {
        let transcript = machine()
            .apply(json!([{"type": "Group", "title": "other", "parameters": {"gid": 100}}]));
        assert!(
            transcript.contains("groupadd failed with exit code 4"),
            "{transcript}"
        );
    }
}
