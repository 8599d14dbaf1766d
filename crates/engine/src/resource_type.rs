//! The traits of a resource type: a pure decision, and a provider that observes and acts.

use std::path::PathBuf;

use crate::{
    ApplyResult, Change, Declaration, ReadAccess, Refusal, StepError, TypeSpec, WriteAccess,
};

/// The deciding half of a type. Everything here is pure: no I/O, no clock.
pub trait ResourceType: Send + Sync + 'static {
    /// The checked declaration.
    type Desired: Send + Sync + 'static;
    /// The observed state of the machine.
    type Observed: Send + 'static;

    fn spec(&self) -> &'static TypeSpec;

    /// Checks the parameters. Called for every resource before anything changes.
    fn desire(&self, declaration: &Declaration) -> Result<Self::Desired, Refusal>;

    /// Returns the differences. An empty list means that there is nothing to do.
    fn changes(&self, desired: &Self::Desired, observed: &Self::Observed) -> Vec<Change>;

    /// Returns a problem that exists although nothing needs to change, if the type
    /// knows any. Called after observing, not for a refresh.
    fn verdict(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
        _noop: bool,
    ) -> Result<(), StepError> {
        Ok(())
    }

    /// Returns the message of a resource that needs no change, if the type has one.
    fn unchanged_message(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
    ) -> Option<String> {
        None
    }

    /// Returns true if the change undoes a change that someone else made, provided that the same
    /// declaration was in place before. It never does for resources that act in every run (a
    /// command, a message), or whose goal changes over time (the newest version).
    fn undoes_drift(&self, _desired: &Self::Desired, _observed: &Self::Observed) -> bool {
        true
    }

    /// Returns the effect of a refresh, if it has any for this type.
    fn refresh_change(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
    ) -> Option<Change> {
        None
    }

    /// Collects the things that the resource provides and needs, for the inferred order.
    fn relations(&self, _desired: &Self::Desired, _relations: &mut Relations) {}

    /// Returns true if observing takes microseconds: no command, no network. Such
    /// resources are handed to workers in batches.
    fn is_quick(&self, _desired: &Self::Desired) -> bool {
        false
    }

    /// Returns the key of the group. Resources with the same key may be applied as one
    /// group, if there is no order between them (packages of one manager).
    fn batch_key(&self, _desired: &Self::Desired) -> Option<String> {
        None
    }
}

/// The acting half. Only [`Provider::apply`] and [`Provider::refresh`] change
/// a machine, and both need [`WriteAccess`].
pub trait Provider: ResourceType {
    /// Observes the machine. Must not change it.
    fn observe(
        &self,
        desired: &Self::Desired,
        access: &ReadAccess<'_>,
    ) -> Result<Self::Observed, StepError>;

    /// Makes the changes that the type decided on.
    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError>;

    /// Performs the refresh that [`ResourceType::refresh_change`] announced.
    fn refresh(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
        _write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        Ok(ApplyResult::default())
    }

    /// Observes a whole group at once, if that is cheaper. Returns one answer for each
    /// member, in order.
    fn observe_group(
        &self,
        group: &[(&Self::Desired, &ReadAccess<'_>)],
    ) -> Vec<Result<Self::Observed, StepError>> {
        group
            .iter()
            .map(|(desired, access)| self.observe(desired, access))
            .collect()
    }

    /// Applies a whole group in one transaction, if the tools allow it. Returns one
    /// answer for each member, in order.
    fn apply_group(&self, group: &[Observation<'_, Self>]) -> Vec<Result<ApplyResult, StepError>> {
        group.iter().map(|one| self.apply(one)).collect()
    }
}

/// A resource that has changes to make, with its desired and observed state.
pub struct Observation<'a, T: ResourceType + ?Sized> {
    pub desired: &'a T::Desired,
    pub observed: &'a T::Observed,
    pub changes: &'a [Change],
    pub write_access: &'a WriteAccess<'a>,
}

impl<'a, T: ResourceType + ?Sized> Observation<'a, T> {
    /// Returns the declared and the observed state, the changes, and the hands to make them with.
    pub fn parts(
        &self,
    ) -> (
        &'a T::Desired,
        &'a T::Observed,
        &'a [Change],
        &'a WriteAccess<'a>,
    ) {
        (self.desired, self.observed, self.changes, self.write_access)
    }
}

/// Something on a machine that one resource provides and another needs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SystemObject {
    Path(PathBuf),
    User(String),
    Group(String),
    Package(String),
    Service(String),
    /// A package repository of one manager (`apt`, `dnf`).
    Repository(String),
    /// Anything else, by kind and name: `("mount", "/srv")`.
    Other(&'static str, String),
}

/// The things that a resource provides and needs, from which order is inferred.
///
/// An inferred edge is dropped when it would close a cycle with declared ones.
#[derive(Default, Debug)]
pub struct Relations {
    pub(crate) provides: Vec<SystemObject>,
    pub(crate) needs: Vec<(SystemObject, &'static str)>,
    pub(crate) needs_above: Vec<PathBuf>,
    pub(crate) genius_needs: Vec<(SystemObject, &'static str)>,
    pub(crate) genius_above: Vec<(PathBuf, &'static str)>,
    pub(crate) serves: Vec<(SystemObject, &'static str)>,
}

impl Relations {
    /// Clears the lists and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.provides.clear();
        self.needs.clear();
        self.needs_above.clear();
        self.genius_needs.clear();
        self.genius_above.clear();
        self.serves.clear();
    }

    /// Adds a thing that the resource provides.
    pub fn provides(&mut self, thing: SystemObject) {
        self.provides.push(thing);
    }

    /// Adds an autorequire of Puppet: the provider of the thing comes first. `why`
    /// completes "after X: …", as in "its owner".
    pub fn needs(&mut self, thing: SystemObject, why: &'static str) {
        self.needs.push((thing, why));
    }

    /// Adds an autorequire of Puppet: the nearest managed path above this one comes first.
    pub fn needs_path_above(&mut self, path: impl Into<PathBuf>) {
        self.needs_above.push(path.into());
    }

    /// Like [`Relations::needs`], but only if order is inferred beyond Puppet's rules
    /// (genius mode).
    pub fn genius_needs(&mut self, thing: SystemObject, why: &'static str) {
        self.genius_needs.push((thing, why));
    }

    /// Like [`Relations::needs_path_above`], in genius mode only.
    pub fn genius_needs_above(&mut self, path: impl Into<PathBuf>, why: &'static str) {
        self.genius_above.push((path.into(), why));
    }

    /// Orders this resource before the provider of the thing, in genius mode only
    /// (configuration before the service that reads it).
    pub fn genius_serves(&mut self, thing: SystemObject, why: &'static str) {
        self.serves.push((thing, why));
    }
}
