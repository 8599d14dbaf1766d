//! `ssh_authorized_key`: a key that may log in as a user.
//!
//! Puppet identifies a key by its comment, Salt by the key itself. Both are supported.
//! The file is in a directory where its user may create links: no link is followed on
//! the path from the home directory, and a link at the end is replaced.

mod line;
mod place;
#[cfg(test)]
mod tests;

use serde_json::json;

use super::{accounts, presence, single_line};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StateFunction, StepError, SystemObject, TypeSpec,
};
use line::Key;

pub(crate) struct SshAuthorizedKey;

static SPEC: TypeSpec = TypeSpec {
    name: "ssh_authorized_key",
    aliases: &[],
    summary: "An SSH key that can log in as a user. Other keys are not changed.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter("user", "the user to log in as; required"),
        parameter("type", "`ssh-ed25519`, `ssh-rsa`, …; `ssh-rsa` by default"),
        parameter(
            "key",
            "the key in base64, without white space; required unless absent",
        ),
        parameter("options", "sshd options, as a list; none by default"),
        parameter("comment", "the comment after the key; the title by default"),
        parameter(
            "target",
            "the file; `.ssh/authorized_keys` in the user's home by default",
        ),
    ],
    states: &[
        StateFunction {
            function: "ssh_auth.present",
            implies: &[("ensure", "present")],
            arguments: &[argument("enc", "type"), argument("config", "target")],
        },
        StateFunction {
            function: "ssh_auth.absent",
            implies: &[("ensure", "absent")],
            arguments: &[argument("enc", "type"), argument("config", "target")],
        },
    ],
    example: r#"[
  {"type": "User", "title": "deploy", "parameters": {"home": "/srv/deploy", "managehome": true}},
  {"type": "Ssh_authorized_key", "title": "ada@example.com", "parameters": {
    "user": "deploy", "type": "ssh-ed25519",
    "key": "AAAAC3NzaC1lZDI1NTE5AAAAIIgZ0kKX4rmFuwFd0Nq2yVKbQ5iHLPbQYgQh1sG1cN2a"}}]"#,
};

pub(crate) struct DesiredKey {
    present: bool,
    user: String,
    key: Key,
    /// Salt's rule: the key identifies the line.
    by_key: bool,
    target: Option<String>,
}

impl DesiredKey {
    fn is(&self, found: &Key) -> bool {
        if self.by_key {
            found.key == self.key.key
        } else {
            found.comment == self.key.comment
        }
    }
}

impl ResourceType for SshAuthorizedKey {
    type Desired = DesiredKey;
    type Observed = Option<Key>;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredKey, Refusal> {
        let user = single_line::word(declaration, "user")?.ok_or(Refusal::Missing("user"))?;
        if !accounts::is_name(&user) {
            return Err(declaration.refuse("user", "the name of a user"));
        }
        let present = presence::present(declaration)?;
        let by_key = declaration.is_state() && !declaration.has("key");
        let key = if by_key {
            state_key(declaration)?
        } else {
            puppet_key(declaration, present)?
        };
        let target = single_line::line(declaration, "target")?;
        if let Some(target) = &target
            && target.split('/').any(|part| part == "..")
        {
            return Err(declaration.refuse("target", "a path without `..`"));
        }
        Ok(DesiredKey {
            present,
            user,
            key,
            by_key,
            target,
        })
    }

    fn changes(&self, desired: &DesiredKey, observed: &Option<Key>) -> Vec<Change> {
        presence::changes(desired.present, observed.as_ref(), |old| {
            let new = &desired.key;
            presence::differing([
                ("type", json!(old.kind), json!(new.kind)),
                ("key", json!(old.key), json!(new.key)),
                ("options", json!(old.options), json!(new.options)),
                ("comment", json!(old.comment), json!(new.comment)),
            ])
        })
    }

    fn relations(&self, desired: &DesiredKey, relations: &mut Relations) {
        relations.needs(SystemObject::User(desired.user.clone()), "its user");
        if let Some(target) = &desired.target {
            relations.needs_path_above(target);
        }
    }
}

fn puppet_key(declaration: &Declaration, present: bool) -> Result<Key, Refusal> {
    let key = single_line::word(declaration, "key")?;
    let comment = single_line::line(declaration, "comment")?;
    let comment = comment.map_or_else(|| declaration.name(), Ok)?;
    let made = Key {
        options: options(declaration)?,
        kind: kind(declaration)?,
        key: match key {
            None if present => return Err(Refusal::Missing("key")),
            key => key.unwrap_or_default(),
        },
        comment,
    };
    checked(declaration, made, present)
}

/// Reads Salt's form: the name is the key, or a whole line of the file.
fn state_key(declaration: &Declaration) -> Result<Key, Refusal> {
    let name = declaration.name()?;
    let mut made = Key::read(name.trim()).unwrap_or(Key {
        options: Vec::new(),
        kind: kind(declaration)?,
        key: name.trim().to_owned(),
        comment: String::new(),
    });
    if declaration.has("options") {
        made.options = options(declaration)?;
    }
    if let Some(comment) = single_line::line(declaration, "comment")? {
        made.comment = comment;
    }
    checked(declaration, made, true)
}

fn checked(declaration: &Declaration, key: Key, needs_key: bool) -> Result<Key, Refusal> {
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    if (needs_key || !key.key.is_empty()) && (key.key.is_empty() || !key.key.chars().all(base64)) {
        return Err(declaration.refuse("key", "a key in base64"));
    }
    if key.comment.contains(char::is_control) {
        return Err(Refusal::other("a key's comment must be a single line"));
    }
    Ok(key)
}

fn kind(declaration: &Declaration) -> Result<String, Refusal> {
    let kind = single_line::word(declaration, "type")?.unwrap_or_else(|| "ssh-rsa".to_owned());
    Ok(match kind.as_str() {
        // Puppet's and Salt's short names.
        "rsa" => "ssh-rsa".to_owned(),
        "dsa" | "dss" => "ssh-dss".to_owned(),
        "ed25519" => "ssh-ed25519".to_owned(),
        "ecdsa" => "ecdsa-sha2-nistp256".to_owned(),
        _ if line::is_kind(&kind) => kind,
        _ => return Err(declaration.refuse("type", "a key type, such as ssh-ed25519")),
    })
}

fn options(declaration: &Declaration) -> Result<Vec<String>, Refusal> {
    let given = declaration.texts("options")?.unwrap_or_default();
    if given
        .iter()
        .any(|one| line::split_options(one).is_none_or(|parts| parts.len() != 1))
    {
        return Err(declaration.refuse("options", "a list of sshd options"));
    }
    Ok(given)
}

impl Provider for SshAuthorizedKey {
    fn observe(
        &self,
        desired: &DesiredKey,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Key>, StepError> {
        let Some(account) = accounts::find_user(access, &desired.user)? else {
            if desired.present && !access.may_appear() {
                return Err(StepError::new(format!("no user `{}`", desired.user)));
            }
            return Ok(None);
        };
        let content = place::read(&account, desired.target.as_deref(), access)?;
        Ok(line::find(&content, |key| desired.is(key)))
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        let account = accounts::find_user(write_access, &desired.user)?;
        let account =
            account.ok_or_else(|| StepError::new(format!("no user `{}`", desired.user)))?;
        place::edit(
            &account,
            desired.target.as_deref(),
            write_access,
            |content| {
                let key = desired.present.then_some(&desired.key);
                line::put(content, key, |key| desired.is(key))
            },
        )?;
        Ok(ApplyResult::default())
    }
}
