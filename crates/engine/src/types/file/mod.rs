//! `file`: a file, a directory, a symbolic link, or nothing, at a path.

mod backup;
mod content;
mod edit;
pub(crate) mod land;
mod look;
mod mode;
pub(crate) mod place;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod wish;

use std::path::Path;

pub(crate) use backup::put_back;
pub use backup::{Backup, BackupError, backups};

use crate::{
    Applied, Change, Declaration, Hands, Observation, Provider, Refusal, Relations, ResourceType,
    Shown, Sight, StepError, TypeSpec,
};
use land::Finish;
use look::{Attributes, Found, Seen};
use wish::{Content, Ensure, Wish};

pub(crate) struct File;

/// The desired kind of object at the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nothing,
    File,
    Directory,
    Link,
    /// The kind of an existing object is left alone, or nothing exists and nothing is created.
    Unmanaged,
}

fn kind_wished(wish: &Wish, found: &Found) -> Kind {
    let managed = match &wish.content {
        Content::Unmanaged => false,
        Content::Edits(_) => wish.create || *found != Found::Nothing,
        _ => true,
    };
    match &wish.ensure {
        Ensure::Absent => Kind::Nothing,
        Ensure::File => Kind::File,
        Ensure::Directory => Kind::Directory,
        Ensure::Link(_) => Kind::Link,
        Ensure::Present if managed || *found == Found::Nothing => Kind::File,
        Ensure::Unspecified if managed => Kind::File,
        Ensure::Present | Ensure::Unspecified => match found {
            Found::File(_) => Kind::File,
            Found::Directory(_) => Kind::Directory,
            Found::Nothing | Found::Link(_) | Found::Other(_) => Kind::Unmanaged,
        },
    }
}

/// Returns the desired mode and owner, given the current state.
fn finish(wish: &Wish, seen: &Seen, kind: Kind) -> Finish {
    let directory = kind == Kind::Directory;
    let now = match (&seen.found, kind) {
        (Found::File(now), Kind::File) | (Found::Directory(now), Kind::Directory) => Some(*now),
        _ => None,
    };
    let mode = match directory {
        true => &wish.directory_mode,
        false => &wish.mode,
    };
    Finish::wanted(mode.as_ref(), seen, directory, now)
}

impl ResourceType for File {
    type Desired = Wish;
    type Observed = Seen;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        Wish::read(declaration)
    }

    fn relations(&self, desired: &Wish, relations: &mut Relations) {
        desired.relations(relations);
    }

    fn is_quick(&self, desired: &Wish) -> bool {
        matches!(desired.content, Content::Bytes(_) | Content::Unmanaged)
            && desired.tree.is_none()
            && desired.validate.is_none()
    }

    fn changes(&self, desired: &Wish, observed: &Seen) -> Vec<Change> {
        let kind = kind_wished(desired, &observed.found);
        let mut changes = Vec::new();
        let diff = observed
            .content
            .as_ref()
            .and_then(|content| content.diff.clone());
        match (kind, &observed.found) {
            (Kind::Unmanaged, _) | (Kind::Nothing, Found::Nothing) => return Vec::new(),
            (Kind::Nothing, found) => {
                return vec![Change::new("ensure", found.word(), Shown::Absent)];
            }
            (Kind::File, Found::File(now)) | (Kind::Directory, Found::Directory(now)) => {
                changes.extend(content_change(observed));
                changes.extend(attribute_changes(desired, observed, kind, *now));
            }
            (Kind::Link, Found::Link(target)) => {
                let Ensure::Link(wanted) = &desired.ensure else {
                    return Vec::new();
                };
                if target != wanted {
                    let (from, to) = (target.to_string_lossy(), wanted.to_string_lossy());
                    changes.push(Change::new("target", from.as_ref(), to.as_ref()));
                }
            }
            (kind, found) => {
                let from = if *found == Found::Nothing {
                    Shown::Absent
                } else {
                    found.word().into()
                };
                let to = match kind {
                    Kind::File => "file",
                    Kind::Directory => "directory",
                    _ => "link",
                };
                changes.push(Change::new("ensure", from, to).with_diff(diff));
            }
        }
        changes.extend(
            observed
                .below
                .iter()
                .map(|below| tree::change(observed, below)),
        );
        changes
    }
}

fn content_change(observed: &Seen) -> Option<Change> {
    let content = observed.content.as_ref().filter(|content| !content.same)?;
    let shown = |sum: &Option<String>| {
        sum.as_ref()
            .map_or(Shown::Absent, |sum| Shown::from(format!("{{sha256}}{sum}")))
    };
    Some(
        Change::new("content", shown(&content.old), shown(&content.new))
            .with_diff(content.diff.clone()),
    )
}

fn attribute_changes(desired: &Wish, observed: &Seen, kind: Kind, now: Attributes) -> Vec<Change> {
    let finish = finish(desired, observed, kind);
    let mut changes = Vec::new();
    let named =
        |name: &Option<String>, number: u32| name.clone().unwrap_or_else(|| number.to_string());
    if let Some(uid) = observed.uid.filter(|uid| *uid != now.uid) {
        changes.push(Change::new(
            "owner",
            now.uid.to_string(),
            named(&desired.owner, uid),
        ));
    }
    if let Some(gid) = observed.gid.filter(|gid| *gid != now.gid) {
        changes.push(Change::new(
            "group",
            now.gid.to_string(),
            named(&desired.group, gid),
        ));
    }
    if finish.mode != now.mode {
        changes.push(Change::new(
            "mode",
            format!("{:04o}", now.mode),
            format!("{:04o}", finish.mode),
        ));
    }
    changes
}

impl Provider for File {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        look::observe(desired, sight)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let (desired, observed, changes, hands) = step.parts();
        let kind = kind_wished(desired, &observed.found);
        let finish = finish(desired, observed, kind);
        if observed.parents_missing && desired.makedirs {
            let above = Finish {
                mode: above_mode(desired),
                ..finish
            };
            land::directories_above(&observed.path, above, hands)?;
        }
        let path = observed.path.as_path();
        match kind {
            Kind::Unmanaged => {}
            Kind::Nothing => {
                keep(desired, path, &observed.found, hands)?;
                land::remove(path, hands)?;
            }
            Kind::File => self.make_file(desired, observed, changes, finish, hands)?,
            Kind::Directory => make_directory(desired, observed, finish, hands)?,
            Kind::Link => make_link(desired, observed, finish, hands)?,
        }
        (observed.below.iter()).try_for_each(|below| tree::apply(desired, below, hands))?;
        Ok(Applied::default())
    }
}

/// Returns the mode of directories above a file: its `dir_mode`, or the default.
fn above_mode(desired: &Wish) -> u32 {
    match (&desired.directory_mode, &desired.mode) {
        (Some(mode), None) => mode.applied_to(0o755, true),
        _ => 0o755,
    }
}

impl File {
    fn make_file(
        &self,
        desired: &Wish,
        observed: &Seen,
        changes: &[Change],
        finish: Finish,
        hands: &Hands<'_>,
    ) -> Result<(), StepError> {
        let path = observed.path.as_path();
        let rewrites = changes
            .iter()
            .any(|change| matches!(change.property.as_str(), "ensure" | "content"));
        if !rewrites {
            return land::attributes(path, &observed.found, finish);
        }
        keep(desired, path, &observed.found, hands)?;
        if let Found::Directory(_) = observed.found {
            land::remove(path, hands)?;
        }
        let nothing = content::Wanted::Nothing;
        let wanted = observed
            .content
            .as_ref()
            .map_or(&nothing, |content| &content.wanted);
        let mut content = content::open(desired, wanted, hands)?;
        land::file(
            path,
            &mut *content,
            finish,
            desired.validate.as_ref(),
            hands,
        )
    }
}

fn make_directory(
    desired: &Wish,
    observed: &Seen,
    finish: Finish,
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    let path = observed.path.as_path();
    match &observed.found {
        found @ Found::Directory(_) => land::attributes(path, found, finish),
        found => {
            if *found != Found::Nothing {
                keep(desired, path, found, hands)?;
                land::remove(path, hands)?;
            }
            land::directory(path, finish, hands)
        }
    }
}

fn make_link(
    desired: &Wish,
    observed: &Seen,
    finish: Finish,
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    let Ensure::Link(target) = &desired.ensure else {
        return Ok(());
    };
    let path = observed.path.as_path();
    keep(desired, path, &observed.found, hands)?;
    if let Found::Directory(_) = observed.found {
        land::remove(path, hands)?;
    }
    let owner = Finish {
        uid: observed.uid,
        gid: observed.gid,
        ..finish
    };
    land::link(path, target, owner, hands)
}

fn keep(desired: &Wish, path: &Path, found: &Found, hands: &Hands<'_>) -> Result<(), StepError> {
    match found {
        Found::File(attributes) if desired.backup => backup::keep(path, *attributes, hands),
        _ => Ok(()),
    }
}
