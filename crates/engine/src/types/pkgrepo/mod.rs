//! `pkgrepo`: a package repository.

mod apt_source;
mod desired;
mod ini;
mod refresh;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::json;
use sha2::Digest;

use super::config_file::{self, NewFile};
use crate::resource_type::Observation;
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StepError, SystemObject, TypeSpec, WriteAccess,
};
use desired::DesiredRepository;

pub(crate) struct Pkgrepo;

/// The current files.
#[derive(Default)]
pub(crate) struct ObservedRepository {
    file: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    /// The key at the declared address.
    wanted_key: Option<Vec<u8>>,
}

impl ResourceType for Pkgrepo {
    type Desired = DesiredRepository;
    type Observed = ObservedRepository;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredRepository, Refusal> {
        DesiredRepository::read(declaration)
    }

    fn changes(&self, desired: &DesiredRepository, observed: &ObservedRepository) -> Vec<Change> {
        let mut changes = Vec::new();
        let old = observed.file.as_deref();
        let new = desired.file_after(old);
        if new.as_deref() != old {
            let had = old.is_some_and(|old| desired.is_in(old));
            let diff = (!desired.secret).then(|| diff(old, new.as_deref()));
            changes.push(
                match (had, desired.present) {
                    (true, true) => Change::new("content", json!("other"), json!("as declared")),
                    (_, true) => Change::new("ensure", DisplayValue::Absent, json!("present")),
                    (_, false) => Change::new("ensure", json!("present"), json!("absent")),
                }
                .with_diff(diff),
            );
        }
        let wanted = desired
            .key
            .as_ref()
            .and_then(|key| key.text.as_ref())
            .or(observed.wanted_key.as_ref());
        match (desired.present, &observed.key, wanted) {
            (true, old, Some(new)) if old.as_ref() != Some(new) => {
                let old = old.as_ref().map_or(DisplayValue::Absent, |old| {
                    DisplayValue::Value(json!(fingerprint(old)))
                });
                changes.push(Change::new("key", old, json!(fingerprint(new))));
            }
            (false, Some(old), _) => {
                changes.push(Change::new(
                    "key",
                    json!(fingerprint(old)),
                    DisplayValue::Absent,
                ));
            }
            _ => {}
        }
        changes
    }

    fn relations(&self, desired: &DesiredRepository, relations: &mut Relations) {
        if desired.present {
            relations.provides(SystemObject::Repository(desired.manager().to_owned()));
        }
        relations.needs_path_above(&desired.target);
        if let Some(signed_by) = &desired.signed_by {
            relations.needs(SystemObject::Path(signed_by.into()), "its key");
        }
    }

    fn batch_key(&self, desired: &DesiredRepository) -> Option<String> {
        Some(desired.manager().to_owned())
    }
}

fn fingerprint(key: &[u8]) -> String {
    let hash = hex::encode(sha2::Sha256::digest(key));
    format!("sha256:{}", &hash[..16])
}

fn diff(old: Option<&[u8]>, new: Option<&[u8]>) -> String {
    let text = |side: Option<&[u8]>| String::from_utf8_lossy(side.unwrap_or_default()).into_owned();
    let (old, new) = (text(old), text(new));
    similar::TextDiff::from_lines(&old, &new)
        .unified_diff()
        .to_string()
}

impl Provider for Pkgrepo {
    fn observe(
        &self,
        desired: &DesiredRepository,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedRepository, StepError> {
        let mut observed = ObservedRepository {
            file: config_file::read(&access.path(&desired.target))?,
            ..ObservedRepository::default()
        };
        let Some(key) = &desired.key else {
            return Ok(observed);
        };
        observed.key = config_file::read(&access.path(&key.path))?;
        // A key on the network is fetched once. A local one is compared.
        if let Some(address) = key.address.as_ref().filter(|_| desired.present)
            && (observed.key.is_none() || !address.starts_with("http"))
        {
            let mut content = Vec::new();
            let reader = access.sources().open(address)?;
            std::io::Read::read_to_end(&mut std::io::Read::take(reader, 1 << 20), &mut content)
                .map_err(|error| StepError::because(format!("cannot read {address}"), error))?;
            observed.wanted_key = Some(content);
        }
        Ok(observed)
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, _, write_access) = step.parts();
        write(desired, observed, write_access)?;
        refresh::one(desired, write_access)
            .inspect_err(|_| undo(desired, observed, write_access))?;
        Ok(ApplyResult::default())
    }

    /// Writes all files first, then refreshes once. Only if that fails, refreshes each
    /// repository alone, to find the faulty one.
    fn apply_group(&self, group: &[Observation<'_, Self>]) -> Vec<Result<ApplyResult, StepError>> {
        let mut written: Vec<Result<ApplyResult, StepError>> = (group.iter())
            .map(|one| {
                write(one.desired, one.observed, one.write_access).map(|()| ApplyResult::default())
            })
            .collect();
        let wanted = group.iter().any(|one| one.desired.wants_refresh());
        if wanted && refresh::all(group[0].desired, group[0].write_access).is_err() {
            for (one, answer) in group.iter().zip(&mut written) {
                if answer.is_ok()
                    && let Err(error) = refresh::one(one.desired, one.write_access)
                {
                    undo(one.desired, one.observed, one.write_access);
                    *answer = Err(error);
                }
            }
        }
        written
    }
}

fn write(
    desired: &DesiredRepository,
    observed: &ObservedRepository,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    if let Some(key) = &desired.key {
        let path = write_access.path(&key.path);
        match key.text.as_ref().or(observed.wanted_key.as_ref()) {
            Some(content) if desired.present => {
                config_file::put(&path, content, NewFile::PUBLIC, write_access)?
            }
            _ if !desired.present => config_file::remove(&path, write_access)?,
            _ => {}
        }
    }
    config_file::alone(|| {
        let path = write_access.path(&desired.target);
        let old = config_file::read(&path)?;
        match desired.file_after(old.as_deref()) {
            Some(content) => config_file::put(&path, &content, NewFile::PUBLIC, write_access),
            None => config_file::remove(&path, write_access),
        }
    })
}

/// Undoes the changes: a repository that cannot be read would block every other one. An
/// error here is less useful than the reason for the undo, so it is ignored.
fn undo(
    desired: &DesiredRepository,
    observed: &ObservedRepository,
    write_access: &WriteAccess<'_>,
) {
    let path = write_access.path(&desired.target);
    let _ = match &observed.file {
        Some(content) => config_file::put(&path, content, NewFile::PUBLIC, write_access),
        None => config_file::remove(&path, write_access),
    };
    if let (Some(key), None) = (&desired.key, &observed.key) {
        let _ = config_file::remove(&write_access.path(&key.path), write_access);
    }
}
