//! The resource types, one file (or folder) each, and their registry.
//!
//! # How to add a type
//!
//! 1. Write `types/NAME.rs` with a unit struct, its `static SPEC: TypeSpec`
//!    (names in Puppet and Salt, parameters, an example that a test runs), an
//!    `impl ResourceType` and an `impl Provider`.
//!    - `desire` checks the parameters with the getters of [`Declaration`] and
//!      refuses values that cannot work: it runs for all resources before anything
//!      changes. Secrets: ask `declaration.is_sensitive(…)`; the executor hides
//!      each [`Change`] whose property is a sensitive parameter, and every
//!      secret text in messages, but it is better not to create a diff at all.
//!    - `changes` is pure: compare the desired state with the observed one.
//!    - `relations` lists the things that the resource provides and needs, for the order.
//!    - `observe` is read-only, `apply` acts. Run commands with [`exec::Run`] (in
//!      `observe` only those that change nothing), reach files through
//!      `access.path(…)`, wait with `access.cancellation()`.
//!    - If a refresh has an effect (a restart), add `refresh_change` and `refresh`.
//!    - If groups are cheaper (packages), add `batch_key`, `observe_group` and
//!      `apply_group`.
//! 2. Add `mod NAME;` and one line in [`Registry::standard`].
//! 3. Test it with real runs: `crate::types::testing` runs one resource.
//!
//! [`Declaration`]: crate::Declaration
//! [`Change`]: crate::Change

mod accounts;
mod archive;
mod config_file;
mod cron;
mod erased;
pub mod exec;
pub(crate) mod file;
mod git;
mod group;
mod host;
#[cfg(test)]
mod hostile_parents;
mod lock;
mod marker;
mod mount;
mod notify;
mod package;
mod pkgrepo;
mod presence;
mod service;
mod single_line;
mod ssh_authorized_key;
mod sysctl;
mod test;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) mod testing_root;
mod tool;
mod trigger;
mod user;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use erased::{AnyInstance, AnyType, PendingResource};

use crate::{Provider, TypeSpec};

/// All types that a catalog may use.
#[derive(Clone)]
pub struct Registry {
    types: Vec<Arc<dyn AnyType>>,
    by_name: HashMap<&'static str, usize>,
    pub(crate) modules: usize,
}

impl Registry {
    /// Returns a registry with the built-in types.
    pub fn standard() -> Self {
        let mut registry = Self::empty();
        registry.add(exec::Exec);
        registry.add(file::File);
        registry.add(notify::Notify);
        registry.add(archive::Archive);
        registry.add(cron::Cron);
        registry.add(git::Git);
        registry.add(group::Group);
        registry.add(host::Host);
        registry.add(lock::Lock);
        registry.add(mount::Mount);
        registry.add(package::Package);
        registry.add(pkgrepo::Pkgrepo);
        registry.add(service::Service);
        registry.add(ssh_authorized_key::SshAuthorizedKey);
        registry.add(sysctl::Sysctl);
        registry.add(user::User);
        registry.add(trigger::Trigger);
        registry.add(test::Test);
        registry.add(marker::Marker(&marker::ANCHOR));
        registry.add(marker::Marker(&marker::SCHEDULE));
        registry.add(marker::Marker(&marker::FILEBUCKET));
        registry
    }

    /// Returns a registry without types.
    pub fn empty() -> Self {
        Self {
            types: Vec::new(),
            by_name: HashMap::new(),
            modules: 0,
        }
    }

    /// Adds a type under its name and aliases. A later type replaces an earlier one.
    pub fn add(&mut self, added: impl Provider) {
        let spec = added.spec();
        let index = self.types.len();
        self.types.push(Arc::new(added));
        for name in std::iter::once(&spec.name).chain(spec.aliases) {
            self.by_name.insert(name, index);
        }
    }

    /// Returns the type of this name, ignoring case (`File`, `file`).
    pub(crate) fn get(&self, type_name: &str) -> Option<&Arc<dyn AnyType>> {
        let index = self.by_name.get(type_name.to_lowercase().as_str())?;
        Some(&self.types[*index])
    }

    pub(crate) fn has_modules(&self) -> bool {
        self.modules > 0
    }

    /// Returns true if there is a type of this name.
    pub fn knows(&self, type_name: &str) -> bool {
        self.get(type_name).is_some()
    }

    /// Returns the table of all types with their names and parameters.
    pub fn specs(&self) -> impl Iterator<Item = &'static TypeSpec> + '_ {
        self.types.iter().map(|one| one.spec())
    }

    /// Returns the type and the mapping of a state function (`file.managed`).
    pub fn state_function(
        &self,
        function: &str,
    ) -> Option<(&'static TypeSpec, &'static crate::StateFunction)> {
        self.specs().find_map(|spec| {
            let found = spec
                .states
                .iter()
                .find(|state| state.function == function)?;
            Some((spec, found))
        })
    }
}
