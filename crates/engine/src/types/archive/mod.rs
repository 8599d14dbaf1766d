//! `archive`: the content of a tar or zip file, unpacked.
//!
//! The unpacked content is recorded with its checksum and the size of each file. So a
//! change of the archive or a missing file is detected without reading the archive
//! again if its checksum is declared.

mod checksum;
mod format;
mod record;
mod spec;
#[cfg(test)]
mod tests;
mod unpack;

use serde_json::json;

use super::single_line;
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    Relations, ResourceType, StepError, SystemObject, TypeSpec,
};
use checksum::Checksum;
use format::Format;
use record::Record;

pub(crate) struct Archive;

pub(crate) struct DesiredArchive {
    path: String,
    source: String,
    checksum: Option<Checksum>,
    format: Format,
    user: Option<String>,
    group: Option<String>,
    strip: usize,
    largest: u64,
}

pub(crate) struct ObservedArchive {
    record: Option<Record>,
    /// The first unpacked entry that is missing or changed.
    missing: Option<String>,
    /// The current checksum of the archive, if none is declared.
    checksum: Option<String>,
}

impl ResourceType for Archive {
    type Desired = DesiredArchive;
    type Observed = ObservedArchive;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredArchive, Refusal> {
        let path = match declaration.text("extract_path")? {
            Some(path) => path,
            None => declaration.name()?,
        };
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(Refusal::other(format!(
                "`{path}` is not an absolute path without `..`"
            )));
        }
        declaration.word("ensure", &["present"])?;
        let source = single_line::line(declaration, "source")?.ok_or(Refusal::Missing("source"))?;
        let format = match declaration.text("format")? {
            Some(name) => Format::named(&name),
            None => Format::named(&source),
        };
        let strip = declaration.integer("strip_components")?.unwrap_or(0);
        let largest = declaration.integer("max_size")?.unwrap_or(16 << 30);
        Ok(DesiredArchive {
            path,
            checksum: Checksum::read(declaration)?,
            format: format.ok_or_else(|| {
                declaration.refuse("format", "tar, tar.gz, tar.xz, tar.bz2, tar.zst or zip")
            })?,
            source,
            user: single_line::word(declaration, "user")?,
            group: single_line::word(declaration, "group")?,
            strip: usize::try_from(strip)
                .map_err(|_| declaration.refuse("strip_components", "a number"))?,
            largest: u64::try_from(largest)
                .map_err(|_| declaration.refuse("max_size", "a number of bytes"))?,
        })
    }

    fn changes(&self, desired: &DesiredArchive, observed: &ObservedArchive) -> Vec<Change> {
        let Some(record) = &observed.record else {
            return vec![Change::new(
                "ensure",
                DisplayValue::Absent,
                json!("unpacked"),
            )];
        };
        let now = desired
            .checksum
            .as_ref()
            .map(Checksum::text)
            .or_else(|| observed.checksum.clone());
        if let Some(now) = now.filter(|now| *now != record.checksum) {
            return vec![Change::new("checksum", json!(record.checksum), json!(now))];
        }
        match &observed.missing {
            Some(missing) => vec![Change::new(
                "content",
                json!(format!("{missing} differs from the archive")),
                json!("unpacked"),
            )],
            None => Vec::new(),
        }
    }

    /// A new archive at the source undoes nothing.
    fn undoes_drift(&self, desired: &DesiredArchive, observed: &ObservedArchive) -> bool {
        let changes = self.changes(desired, observed);
        changes.iter().any(|change| change.property != "checksum")
    }

    fn relations(&self, desired: &DesiredArchive, relations: &mut Relations) {
        relations.needs(
            SystemObject::Path(desired.path.clone().into()),
            "where it goes",
        );
        relations.needs_path_above(&desired.path);
        if let Some(user) = &desired.user {
            relations.needs(SystemObject::User(user.clone()), "its owner");
        }
        if let Some(group) = &desired.group {
            relations.needs(SystemObject::Group(group.clone()), "its group");
        }
        if desired.source.starts_with('/') {
            relations.genius_needs(
                SystemObject::Path(desired.source.clone().into()),
                "its source",
            );
        }
    }
}

impl Provider for Archive {
    fn observe(
        &self,
        desired: &DesiredArchive,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedArchive, StepError> {
        let record = Record::load(desired, access)?;
        let missing = record
            .as_ref()
            .and_then(|record| record.missing(&access.path(&desired.path)));
        let checksum = match (&record, &desired.checksum) {
            // An earlier resource may create the archive.
            (Some(_), None) => match checksum::of_source(&desired.source, access) {
                Err(_) if access.may_appear() => None,
                other => Some(other?),
            },
            _ => None,
        };
        Ok(ObservedArchive {
            record,
            missing,
            checksum,
        })
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        let record = unpack::unpack(desired, write_access)?;
        let count = record.entries.len();
        record.save(desired, write_access)?;
        Ok(ApplyResult {
            message: Some(format!("unpacked {count} entries")),
            ..ApplyResult::default()
        })
    }
}
