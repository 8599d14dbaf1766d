//! `file`: a file, a directory, a symbolic link, or nothing, at a path.

mod backup;
mod content;
mod desired;
mod edit;
pub(crate) mod land;
mod mode;
mod observed;
pub(crate) mod place;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod tree;

use std::path::Path;

pub(crate) use backup::put_back;
pub use backup::{Backup, BackupError, backups};

use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    Relations, ResourceType, StepError, TypeSpec, WriteAccess,
};
use desired::{Content, DesiredFile, Ensure};
use land::Finish;
use observed::{Attributes, ObservedFile, PathContent};

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

fn desired_kind(desired: &DesiredFile, found: &PathContent) -> Kind {
    let managed = match &desired.content {
        Content::Unmanaged => false,
        Content::Edits(_) => desired.create || *found != PathContent::Nothing,
        _ => true,
    };
    match &desired.ensure {
        Ensure::Absent => Kind::Nothing,
        Ensure::File => Kind::File,
        Ensure::Directory => Kind::Directory,
        Ensure::Link(_) => Kind::Link,
        Ensure::Present if managed || *found == PathContent::Nothing => Kind::File,
        Ensure::Unspecified if managed => Kind::File,
        Ensure::Present | Ensure::Unspecified => match found {
            PathContent::File(_) => Kind::File,
            PathContent::Directory(_) => Kind::Directory,
            PathContent::Nothing | PathContent::Link(_) | PathContent::Other(_) => Kind::Unmanaged,
        },
    }
}

/// Returns the desired mode and owner, given the current state.
fn finish(desired: &DesiredFile, observed: &ObservedFile, kind: Kind) -> Finish {
    let directory = kind == Kind::Directory;
    let now = match (&observed.found, kind) {
        (PathContent::File(now), Kind::File) | (PathContent::Directory(now), Kind::Directory) => {
            Some(*now)
        }
        _ => None,
    };
    let mode = if directory {
        &desired.directory_mode
    } else {
        &desired.mode
    };
    Finish::wanted(mode.as_ref(), observed, directory, now)
}

impl ResourceType for File {
    type Desired = DesiredFile;
    type Observed = ObservedFile;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredFile, Refusal> {
        DesiredFile::read(declaration)
    }

    fn relations(&self, desired: &DesiredFile, relations: &mut Relations) {
        desired.relations(relations);
    }

    fn is_quick(&self, desired: &DesiredFile) -> bool {
        matches!(desired.content, Content::Bytes(_) | Content::Unmanaged)
            && desired.tree.is_none()
            && desired.validate.is_none()
    }

    /// New content at a source outside the catalog undoes nothing.
    fn undoes_drift(&self, desired: &DesiredFile, observed: &ObservedFile) -> bool {
        let is_outside = |address: &String| {
            ["/", "file:", "http:", "https:"]
                .iter()
                .any(|start| address.starts_with(start))
        };
        let moves = match &desired.content {
            Content::Source {
                addresses,
                checksum: None,
            } => addresses.iter().any(is_outside),
            _ => false,
        };
        !moves
            || self
                .changes(desired, observed)
                .iter()
                .any(|change| change.property != "content")
    }

    fn changes(&self, desired: &DesiredFile, observed: &ObservedFile) -> Vec<Change> {
        let kind = desired_kind(desired, &observed.found);
        let mut changes = Vec::new();
        let diff = observed
            .content
            .as_ref()
            .and_then(|content| content.diff.clone());
        match (kind, &observed.found) {
            (Kind::Unmanaged, _) | (Kind::Nothing, PathContent::Nothing) => return Vec::new(),
            (Kind::Nothing, found) => {
                return vec![Change::new("ensure", found.word(), DisplayValue::Absent)];
            }
            (Kind::File, PathContent::File(now))
            | (Kind::Directory, PathContent::Directory(now)) => {
                changes.extend(content_change(observed));
                changes.extend(attribute_changes(desired, observed, kind, *now));
            }
            (Kind::Link, PathContent::Link(target)) => {
                let Ensure::Link(wanted) = &desired.ensure else {
                    return Vec::new();
                };
                if target != wanted {
                    let (from, to) = (target.to_string_lossy(), wanted.to_string_lossy());
                    changes.push(Change::new("target", from.as_ref(), to.as_ref()));
                }
            }
            (kind, found) => {
                let from = if *found == PathContent::Nothing {
                    DisplayValue::Absent
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

fn content_change(observed: &ObservedFile) -> Option<Change> {
    let content = observed.content.as_ref().filter(|content| !content.same)?;
    let shown = |sum: &Option<String>| {
        sum.as_ref().map_or(DisplayValue::Absent, |sum| {
            DisplayValue::from(format!("{{sha256}}{sum}"))
        })
    };
    Some(
        Change::new("content", shown(&content.old), shown(&content.new))
            .with_diff(content.diff.clone()),
    )
}

fn attribute_changes(
    desired: &DesiredFile,
    observed: &ObservedFile,
    kind: Kind,
    now: Attributes,
) -> Vec<Change> {
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
    fn observe(
        &self,
        desired: &DesiredFile,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedFile, StepError> {
        observed::observe(desired, access)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        let kind = desired_kind(desired, &observed.found);
        let finish = finish(desired, observed, kind);
        if observed.parents_missing && desired.makedirs {
            let above = Finish {
                mode: above_mode(desired),
                ..finish
            };
            land::directories_above(&observed.path, above, write_access)?;
        }
        let path = observed.path.as_path();
        match kind {
            Kind::Unmanaged => {}
            Kind::Nothing => {
                keep(desired, path, &observed.found, write_access)?;
                land::remove(path, write_access)?;
            }
            Kind::File => self.make_file(desired, observed, changes, finish, write_access)?,
            Kind::Directory => make_directory(desired, observed, finish, write_access)?,
            Kind::Link => make_link(desired, observed, finish, write_access)?,
        }
        (observed.below.iter()).try_for_each(|below| tree::apply(desired, below, write_access))?;
        Ok(ApplyResult::default())
    }
}

/// Returns the mode of directories above a file: its `dir_mode`, or the default.
fn above_mode(desired: &DesiredFile) -> u32 {
    match (&desired.directory_mode, &desired.mode) {
        (Some(mode), None) => mode.applied_to(0o755, true),
        _ => 0o755,
    }
}

impl File {
    fn make_file(
        &self,
        desired: &DesiredFile,
        observed: &ObservedFile,
        changes: &[Change],
        finish: Finish,
        write_access: &WriteAccess<'_>,
    ) -> Result<(), StepError> {
        let path = observed.path.as_path();
        let rewrites = changes
            .iter()
            .any(|change| matches!(change.property.as_str(), "ensure" | "content"));
        if !rewrites {
            return land::attributes(path, &observed.found, finish);
        }
        keep(desired, path, &observed.found, write_access)?;
        if let PathContent::Directory(_) = observed.found {
            land::remove(path, write_access)?;
        }
        let nothing = content::ContentLocation::Nothing;
        let wanted = observed
            .content
            .as_ref()
            .map_or(&nothing, |content| &content.wanted);
        let mut content = content::open(desired, wanted, write_access)?;
        land::file(
            path,
            &mut *content,
            finish,
            desired.validate.as_ref(),
            write_access,
        )
    }
}

fn make_directory(
    desired: &DesiredFile,
    observed: &ObservedFile,
    finish: Finish,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let path = observed.path.as_path();
    match &observed.found {
        found @ PathContent::Directory(_) => land::attributes(path, found, finish),
        found => {
            if *found != PathContent::Nothing {
                keep(desired, path, found, write_access)?;
                land::remove(path, write_access)?;
            }
            land::directory(path, finish, write_access)
        }
    }
}

fn make_link(
    desired: &DesiredFile,
    observed: &ObservedFile,
    finish: Finish,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let Ensure::Link(target) = &desired.ensure else {
        return Ok(());
    };
    let path = observed.path.as_path();
    keep(desired, path, &observed.found, write_access)?;
    if let PathContent::Directory(_) = observed.found {
        land::remove(path, write_access)?;
    }
    let owner = Finish {
        uid: observed.uid,
        gid: observed.gid,
        ..finish
    };
    land::link(path, target, owner, write_access)
}

fn keep(
    desired: &DesiredFile,
    path: &Path,
    found: &PathContent,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    match found {
        PathContent::File(attributes) if desired.backup => {
            backup::keep(path, *attributes, write_access)
        }
        _ => Ok(()),
    }
}
