//! `package`: software of the system, through the system's package manager.
//!
//! One query reads everything that is installed, and the changes of a group go to the
//! manager in one transaction. When that fails, each member is tried alone, so that
//! only the faulty ones fail. The final state of the installed packages decides.

mod apt;
mod desired;
mod dnf;
mod holder;
mod manager;
mod spec;
#[cfg(test)]
pub(crate) mod test_repository;
#[cfg(test)]
mod tests_apt;
#[cfg(test)]
mod tests_decision;
#[cfg(test)]
mod tests_dnf;
mod together;

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::resource_type::Observation;
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StepError, StepResult, SystemObject, TypeSpec,
};
pub(crate) use apt::refresh_apt_file;
use desired::{DesiredPackage, DesiredPackages, Ensure};
pub(crate) use dnf::refresh_dnf_repository;
pub(crate) use manager::{Manager, of_machine};

pub(crate) struct Package;

/// The state of one package on the machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Status {
    /// The installed version.
    version: Option<String>,
    /// Another installed package provides the name.
    provided: bool,
    /// Removed, but its configuration files still exist.
    configuration_left: bool,
    held: bool,
    /// The version in the repositories. Looked up only if `latest` needs it.
    candidate: Option<String>,
    /// The repositories' metadata was never fetched.
    unfetched: bool,
}

/// Package states, by name.
pub(crate) type Statuses = HashMap<String, Status>;

/// Returns empty states for these packages.
fn unknown(names: &[&str]) -> Statuses {
    let names = names.iter().map(|name| (*name).to_owned());
    names.map(|name| (name, Status::default())).collect()
}

impl ResourceType for Package {
    type Desired = DesiredPackages;
    type Observed = Statuses;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredPackages, Refusal> {
        DesiredPackages::read(declaration)
    }

    fn changes(&self, desired: &DesiredPackages, observed: &Statuses) -> Vec<Change> {
        let unknown = Status::default();
        let mut changes = Vec::new();
        for wanted in &desired.packages {
            let status = observed.get(&wanted.name).unwrap_or(&unknown);
            if !wanted.is_met(status) {
                let name = if desired.several {
                    &wanted.name
                } else {
                    "ensure"
                };
                changes.push(Change::new(name, shown(status), target(wanted, status)));
            }
            // A package that is not installed cannot be held.
            if let Some(hold) = desired.hold.filter(|_| wanted.is_to_be_there())
                && hold != status.held
            {
                let name = if desired.several {
                    format!("{} hold", wanted.name)
                } else {
                    "hold".to_owned()
                };
                changes.push(Change::new(name, json!(status.held), json!(hold)));
            }
        }
        changes
    }

    /// An upgrade to the newest version undoes nothing.
    fn undoes_drift(&self, desired: &DesiredPackages, observed: &Statuses) -> bool {
        let unknown = Status::default();
        desired.packages.iter().any(|wanted| {
            let status = observed.get(&wanted.name).unwrap_or(&unknown);
            let is_upgrade = wanted.ensure == Ensure::Latest && status.version.is_some();
            let is_held_otherwise = desired
                .hold
                .is_some_and(|hold| wanted.is_to_be_there() && hold != status.held);
            is_held_otherwise || !wanted.is_met(status) && !is_upgrade
        })
    }

    fn relations(&self, desired: &DesiredPackages, relations: &mut Relations) {
        for wanted in desired
            .packages
            .iter()
            .filter(|wanted| wanted.is_to_be_there())
        {
            relations.provides(SystemObject::Package(wanted.name.clone()));
            for manager in ["apt", "dnf"] {
                let repository = SystemObject::Repository(manager.to_owned());
                relations.genius_needs(repository, "the repositories it may come from");
            }
        }
        if let Some(source) = &desired.source {
            relations.needs(SystemObject::Path(source.into()), "its source");
        }
    }

    fn batch_key(&self, desired: &DesiredPackages) -> Option<String> {
        Some(desired.batch_key())
    }
}

fn shown(status: &Status) -> DisplayValue {
    match &status.version {
        Some(version) => DisplayValue::Value(json!(version)),
        None if status.configuration_left => DisplayValue::Value(json!("configuration files")),
        None => DisplayValue::Absent,
    }
}

fn target(wanted: &DesiredPackage, status: &Status) -> Value {
    match &wanted.ensure {
        Ensure::Installed => json!("installed"),
        Ensure::Latest => json!(status.candidate.as_deref().unwrap_or("latest")),
        Ensure::Version(version) => json!(version),
        Ensure::Absent => json!("absent"),
        Ensure::Purged => json!("purged"),
    }
}

impl Provider for Package {
    fn observe(&self, desired: &DesiredPackages, access: &ReadAccess<'_>) -> StepResult<Statuses> {
        let manager = of_machine(desired.provider, access)?;
        together::look(&*manager, &[desired], access)
    }

    fn observe_group(
        &self,
        group: &[(&DesiredPackages, &ReadAccess<'_>)],
    ) -> Vec<StepResult<Statuses>> {
        let desired: Vec<&DesiredPackages> = group.iter().map(|(desired, _)| *desired).collect();
        let (first, access) = group[0];
        let statuses = of_machine(first.provider, access)
            .and_then(|manager| together::look(&*manager, &desired, access));
        match statuses {
            Ok(all) => desired
                .iter()
                .map(|desired| Ok(together::part(&all, desired)))
                .collect(),
            // Each alone, so that each has its own error.
            Err(_) => group
                .iter()
                .map(|(desired, access)| self.observe(desired, access))
                .collect(),
        }
    }

    fn apply(&self, step: &Observation<'_, Self>) -> StepResult<ApplyResult> {
        let (desired, observed, _, write_access) = step.parts();
        let manager = of_machine(desired.provider, write_access)?;
        let mut answers = together::act(&*manager, &[(desired, observed)], write_access);
        answers.pop().unwrap_or_else(|| Ok(ApplyResult::default()))
    }

    fn apply_group(&self, group: &[Observation<'_, Self>]) -> Vec<StepResult<ApplyResult>> {
        let members: Vec<_> = group
            .iter()
            .map(|one| (one.desired, one.observed))
            .collect();
        let first = &group[0];
        match of_machine(first.desired.provider, first.write_access) {
            Ok(manager) => together::act(&*manager, &members, first.write_access),
            Err(error) => (group.iter())
                .map(|_| Err(StepError::new(error.chain())))
                .collect(),
        }
    }
}
