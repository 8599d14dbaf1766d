//! The declaration of an account.

use jiff::civil::Date;

use crate::types::{accounts, presence, single_line};
use crate::{Declaration, Refusal};

pub(crate) struct DesiredUser {
    pub(super) name: String,
    pub(super) present: bool,
    pub(super) uid: Option<u32>,
    pub(super) group: Option<String>,
    pub(super) groups: Option<Vec<String>>,
    /// True if other groups are not allowed.
    pub(super) only: bool,
    pub(super) home: Option<String>,
    pub(super) manage_home: bool,
    pub(super) shell: Option<String>,
    pub(super) comment: Option<String>,
    pub(super) password: Option<String>,
    /// `None`: not managed. `Some(None)`: never expires. Otherwise days since 1970.
    pub(super) expiry: Option<Option<i64>>,
    pub(super) system: bool,
    pub(super) duplicate: bool,
}

impl DesiredUser {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        let name = declaration.name()?;
        if !accounts::is_name(&name) {
            return Err(Refusal::other(format!("`{name}` is not a valid user name")));
        }
        let group = declaration.text("gid")?;
        if group
            .as_deref()
            .is_some_and(|group| !accounts::is_name(group))
        {
            return Err(declaration.refuse("gid", "a group"));
        }
        let groups = declaration.texts("groups")?;
        if groups
            .iter()
            .flatten()
            .any(|group| !accounts::is_name(group))
        {
            return Err(declaration.refuse("groups", "names of groups"));
        }
        declaration.boolean("forcelocal")?;
        let membership = declaration.word("membership", &["minimum", "inclusive"])?;
        let uid = declaration.integer("uid")?;
        Ok(Self {
            name,
            present: presence::present(declaration)?,
            uid: uid
                .map(|uid| u32::try_from(uid).map_err(|_| declaration.refuse("uid", "a number")))
                .transpose()?,
            group,
            groups,
            only: membership == Some("inclusive"),
            home: field(declaration, "home")?,
            manage_home: declaration.boolean("managehome")?.unwrap_or(false),
            shell: field(declaration, "shell")?,
            comment: field(declaration, "comment")?,
            password: field(declaration, "password")?,
            expiry: expiry(declaration)?,
            system: declaration.boolean("system")?.unwrap_or(false),
            duplicate: declaration.boolean("allowdupe")?.unwrap_or(false),
        })
    }

    /// Returns the desired groups, sorted.
    pub(super) fn groups_from(&self, old: &[String]) -> Vec<String> {
        let Some(wanted) = &self.groups else {
            return old.to_vec();
        };
        let kept: &[String] = if self.only { &[] } else { old };
        let mut groups: Vec<String> = kept.iter().chain(wanted).cloned().collect();
        groups.sort();
        groups.dedup();
        groups
    }
}

/// Reads a field of a line whose fields are separated by colons.
fn field(declaration: &Declaration, name: &str) -> Result<Option<String>, Refusal> {
    match single_line::line(declaration, name)? {
        Some(text) if text.contains(':') => Err(declaration.refuse(name, "text without a colon")),
        other => Ok(other),
    }
}

fn expiry(declaration: &Declaration) -> Result<Option<Option<i64>>, Refusal> {
    let Some(text) = declaration.text("expiry")? else {
        return Ok(None);
    };
    if matches!(text.as_str(), "absent" | "-1" | "") {
        return Ok(Some(None));
    }
    let days = text.parse::<i64>().ok().or_else(|| {
        let date: Date = text.parse().ok()?;
        date.since(epoch())
            .ok()
            .map(|span| i64::from(span.get_days()))
    });
    let days = days.filter(|days| *days >= 0);
    match days {
        Some(days) => Ok(Some(Some(days))),
        None => Err(declaration.refuse("expiry", "a date such as 2030-12-31, or `absent`")),
    }
}

fn epoch() -> Date {
    jiff::civil::date(1970, 1, 1)
}

/// Returns a day in the format for messages and for the tools.
pub(super) fn date(days: Option<i64>) -> String {
    let Some(days) = days else {
        return "never".to_owned();
    };
    let span = jiff::Span::new().try_days(days);
    let date = span.and_then(|span| epoch().checked_add(span));
    date.map_or_else(|_| days.to_string(), |date| date.to_string())
}
