//! `user`: an account.
//!
//! Passwords are hashes that are compared and set as they are. They reach the tools
//! through standard input only: every user can read arguments.

mod desired;
mod provide;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::json;

use super::accounts::{self, Account, Shadow};
use super::presence;
use crate::{
    Change, Declaration, DisplayValue, Refusal, Relations, ResourceType, SystemObject, TypeSpec,
};
use desired::DesiredUser;

pub(crate) struct User;

/// The current state of an account.
#[derive(Default)]
pub(crate) struct ObservedUser {
    account: Option<Account>,
    shadow: Shadow,
    /// The groups that list the user, sorted.
    groups: Vec<String>,
    /// The ID of the desired primary group, if it exists.
    wanted_gid: Option<u32>,
    home_exists: bool,
}

impl ResourceType for User {
    type Desired = DesiredUser;
    type Observed = ObservedUser;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredUser, Refusal> {
        DesiredUser::read(declaration)
    }

    fn changes(&self, desired: &DesiredUser, observed: &ObservedUser) -> Vec<Change> {
        presence::changes(desired.present, observed.account.as_ref(), |account| {
            differences(desired, account, observed)
        })
    }

    fn relations(&self, desired: &DesiredUser, relations: &mut Relations) {
        if !desired.present {
            relations.provides(accounts::user_removals());
            return;
        }
        relations.provides(SystemObject::User(desired.name.clone()));
        let primary = desired
            .group
            .iter()
            .map(|group| (group, "its primary group"));
        let others = desired
            .groups
            .iter()
            .flatten()
            .map(|group| (group, "one of its groups"));
        for (group, why) in primary.chain(others) {
            relations.needs(SystemObject::Group(group.clone()), why);
        }
        if let Some(shell) = &desired.shell {
            relations.needs(SystemObject::Path(shell.into()), "its shell");
        }
    }
}

fn differences(desired: &DesiredUser, account: &Account, observed: &ObservedUser) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(uid) = desired.uid.filter(|uid| *uid != account.uid) {
        changes.push(Change::new("uid", json!(account.uid), json!(uid)));
    }
    if let Some(group) = &desired.group
        && observed.wanted_gid != Some(account.gid)
    {
        changes.push(Change::new("gid", json!(account.gid), json!(group)));
    }
    let texts = [
        ("comment", &account.comment, &desired.comment),
        ("home", &account.home, &desired.home),
        ("shell", &account.shell, &desired.shell),
    ];
    for (property, old, new) in texts {
        if let Some(new) = new.as_ref().filter(|new| *new != old) {
            changes.push(Change::new(property, json!(old), json!(new)));
        }
    }
    let groups = desired.groups_from(&observed.groups);
    if groups != observed.groups {
        changes.push(Change::new("groups", json!(observed.groups), json!(groups)));
    }
    if let Some(expiry) = desired
        .expiry
        .filter(|expiry| *expiry != observed.shadow.expires)
    {
        let old = desired::date(observed.shadow.expires);
        changes.push(Change::new(
            "expiry",
            json!(old),
            json!(desired::date(expiry)),
        ));
    }
    if desired
        .password
        .as_ref()
        .is_some_and(|new| *new != observed.shadow.password)
    {
        // Not even the hash is shown, whether it is declared as a secret or not.
        changes.push(Change::new(
            "password",
            DisplayValue::Secret,
            DisplayValue::Secret,
        ));
    }
    if desired.manage_home
        && !observed.home_exists
        && !changes.iter().any(|one| one.property == "home")
    {
        changes.push(Change::new(
            "home_directory",
            DisplayValue::Absent,
            json!("present"),
        ));
    }
    changes
}
