//! `git`: a checkout at a revision.
//!
//! Observing queries the source with `ls-remote`, which changes nothing. A clone is
//! created beside its place and moved there when it is complete. Git never asks for a
//! password, and addresses are shown without the password they may contain.

mod observe;
mod provide;
mod spec;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::{accounts, single_line};
use crate::{
    Change, Declaration, DisplayValue, Refusal, Relations, ResourceType, SystemObject, TypeSpec,
};

pub(crate) struct Git;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ensure {
    Present,
    Latest,
    Cloned,
    Bare,
    Absent,
}

pub(crate) struct DesiredCheckout {
    path: String,
    /// Another path to the checkout, as long as its name cannot be trusted.
    reached: Option<std::path::PathBuf>,
    ensure: Ensure,
    source: String,
    revision: Option<String>,
    force: bool,
    submodules: bool,
    depth: Option<i64>,
    remote: String,
    user: Option<String>,
    identity: Option<String>,
    timeout: Duration,
}

/// The state of the path.
pub(crate) enum ObservedCheckout {
    Nothing,
    /// Something that is not a repository.
    Other,
    Repository(Checkout),
}

pub(crate) struct Checkout {
    /// The current commit. `None` in an empty repository.
    head: Option<String>,
    source: Option<String>,
    /// The commit that should be checked out, if it is known.
    wanted: Option<String>,
    dirty: bool,
}

impl ResourceType for Git {
    type Desired = DesiredCheckout;
    type Observed = ObservedCheckout;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredCheckout, Refusal> {
        let words = ["present", "latest", "cloned", "bare", "absent"];
        let ensure = match declaration.word("ensure", &words)? {
            Some("latest") => Ensure::Latest,
            Some("cloned") => Ensure::Cloned,
            Some("bare") => Ensure::Bare,
            Some("absent") => Ensure::Absent,
            _ => Ensure::Present,
        };
        declaration.word("provider", &["git"])?;
        let path = declaration.name()?;
        if !path.starts_with('/') || path == "/" || path.split('/').any(|part| part == "..") {
            return Err(Refusal::other(format!(
                "`{path}` is not an absolute path without `..`"
            )));
        }
        let user = single_line::word(declaration, "user")?;
        if user.as_deref().is_some_and(|user| !accounts::is_name(user)) {
            return Err(declaration.refuse("user", "the name of a user"));
        }
        Ok(DesiredCheckout {
            reached: None,
            path: path.trim_end_matches('/').to_owned(),
            ensure,
            source: match plain(declaration, "source")? {
                None if ensure != Ensure::Absent => return Err(Refusal::Missing("source")),
                source => source.unwrap_or_default(),
            },
            revision: plain(declaration, "revision")?.filter(|revision| revision != "HEAD"),
            force: declaration.boolean("force")?.unwrap_or(false),
            submodules: declaration
                .boolean("submodules")?
                .unwrap_or(declaration.has("submodules")),
            depth: declaration.integer("depth")?.filter(|depth| *depth > 0),
            remote: plain(declaration, "remote")?.unwrap_or_else(|| "origin".to_owned()),
            user,
            identity: plain(declaration, "identity")?,
            timeout: (declaration.seconds("timeout")?).unwrap_or(Duration::from_secs(3600)),
        })
    }

    fn changes(&self, desired: &DesiredCheckout, observed: &ObservedCheckout) -> Vec<Change> {
        let found = match (desired.ensure, observed) {
            (Ensure::Absent, ObservedCheckout::Nothing) => return Vec::new(),
            (Ensure::Absent, _) => {
                return vec![Change::new("ensure", json!("present"), json!("absent"))];
            }
            (_, ObservedCheckout::Repository(found)) => found,
            (_, ObservedCheckout::Nothing) => {
                return vec![Change::new(
                    "ensure",
                    DisplayValue::Absent,
                    json!("present"),
                )];
            }
            (_, ObservedCheckout::Other) => {
                return vec![Change::new(
                    "ensure",
                    json!("something else"),
                    json!("present"),
                )];
            }
        };
        let mut changes = Vec::new();
        if found.source.as_ref() != Some(&desired.source) {
            let old = found.source.as_deref().map_or(DisplayValue::Absent, |old| {
                DisplayValue::Value(json!(shown(old)))
            });
            changes.push(Change::new("source", old, json!(shown(&desired.source))));
        }
        if matches!(desired.ensure, Ensure::Cloned | Ensure::Bare) {
            return changes;
        }
        let pinned = desired.revision.is_some() || desired.ensure == Ensure::Latest;
        if pinned && (found.wanted.is_none() || found.wanted != found.head) {
            let old = found
                .head
                .clone()
                .map_or(DisplayValue::Absent, DisplayValue::from);
            let wanted = found.wanted.clone().or_else(|| desired.revision.clone());
            changes.push(Change::new(
                "revision",
                old,
                json!(wanted.unwrap_or_else(|| "latest".to_owned())),
            ));
        } else if found.dirty && desired.force {
            changes.push(Change::new(
                "content",
                json!("local changes"),
                json!("as committed"),
            ));
        }
        changes
    }

    /// New commits on a branch undo nothing.
    fn undoes_drift(&self, desired: &DesiredCheckout, observed: &ObservedCheckout) -> bool {
        let is_fixed = desired.revision.as_ref().is_some_and(|revision| {
            revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let changes = self.changes(desired, observed);
        is_fixed || changes.iter().any(|change| change.property != "revision")
    }

    fn relations(&self, desired: &DesiredCheckout, relations: &mut Relations) {
        relations.provides(SystemObject::Path(desired.path.clone().into()));
        relations.needs_path_above(&desired.path);
        if let Some(user) = &desired.user {
            relations.needs(SystemObject::User(user.clone()), "its user");
        }
        relations.genius_needs(SystemObject::Package("git".to_owned()), "provides git");
        if desired.source.starts_with('/') {
            relations.genius_needs(
                SystemObject::Path(desired.source.clone().into()),
                "its source",
            );
        }
    }
}

/// Reads a single line that git cannot mistake for an option.
fn plain(declaration: &Declaration, name: &str) -> Result<Option<String>, Refusal> {
    match single_line::line(declaration, name)? {
        Some(text) if text.is_empty() || text.starts_with('-') || text.starts_with("ext::") => {
            Err(declaration.refuse(name, "a value that does not start with `-`"))
        }
        other => Ok(other),
    }
}

/// Returns an address without its password.
fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://[secret]@{}", &rest[at + 1..]),
        None => address.to_owned(),
    }
}
