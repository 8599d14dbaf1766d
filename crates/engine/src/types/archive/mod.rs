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
    Applied, Change, Declaration, Observation, Provider, Refusal, Relations, ResourceType, Shown,
    Sight, StepError, Thing, TypeSpec,
};
use checksum::Checksum;
use format::Format;
use record::Record;

pub(crate) struct Archive;

pub(crate) struct Wish {
    path: String,
    source: String,
    checksum: Option<Checksum>,
    format: Format,
    user: Option<String>,
    group: Option<String>,
    strip: usize,
    largest: u64,
}

pub(crate) struct Seen {
    record: Option<Record>,
    /// The first unpacked entry that is missing or changed.
    missing: Option<String>,
    /// The current checksum of the archive, if none is declared.
    checksum: Option<String>,
}

impl ResourceType for Archive {
    type Desired = Wish;
    type Observed = Seen;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        let path = match declaration.text("extract_path")? {
            Some(path) => path,
            None => declaration.name()?,
        };
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(Refusal::other(format!(
                "`{path}` is not a full path without `..`"
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
        Ok(Wish {
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

    fn changes(&self, desired: &Wish, observed: &Seen) -> Vec<Change> {
        let Some(record) = &observed.record else {
            return vec![Change::new("ensure", Shown::Absent, json!("unpacked"))];
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
                json!(format!("{missing} is not as unpacked")),
                json!("unpacked"),
            )],
            None => Vec::new(),
        }
    }

    fn relations(&self, desired: &Wish, relations: &mut Relations) {
        relations.needs(Thing::Path(desired.path.clone().into()), "where it goes");
        relations.needs_path_above(&desired.path);
        if let Some(user) = &desired.user {
            relations.needs(Thing::User(user.clone()), "its owner");
        }
        if let Some(group) = &desired.group {
            relations.needs(Thing::Group(group.clone()), "its group");
        }
        if desired.source.starts_with('/') {
            relations.genius_needs(Thing::Path(desired.source.clone().into()), "its source");
        }
    }
}

impl Provider for Archive {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        let record = Record::load(desired, sight)?;
        let missing = record
            .as_ref()
            .and_then(|record| record.missing(&sight.path(&desired.path)));
        let checksum = match (&record, &desired.checksum) {
            // An earlier resource may create the archive.
            (Some(_), None) => match checksum::of_source(&desired.source, sight) {
                Err(_) if sight.may_appear() => None,
                other => Some(other?),
            },
            _ => None,
        };
        Ok(Seen {
            record,
            missing,
            checksum,
        })
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let Observation { desired, hands, .. } = *step;
        let record = unpack::unpack(desired, hands)?;
        let count = record.entries.len();
        record.save(desired, hands)?;
        Ok(Applied {
            message: Some(format!("unpacked {count} entries")),
            ..Applied::default()
        })
    }
}
