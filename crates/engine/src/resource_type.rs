//! What a resource type is: a pure decision, and a provider that observes and acts.

use std::path::PathBuf;

use crate::{Applied, Change, Declaration, Hands, Refusal, Sight, StepError, TypeSpec};

/// The deciding half of a type. Everything here is pure: no I/O, no clock.
pub trait ResourceType: Send + Sync + 'static {
    /// What a declaration asks for, checked.
    type Desired: Send + Sync + 'static;
    /// What the machine looks like.
    type Observed: Send + 'static;

    fn spec(&self) -> &'static TypeSpec;

    /// Checks the parameters. Called for every resource before anything changes.
    fn desire(&self, declaration: &Declaration) -> Result<Self::Desired, Refusal>;

    /// What differs. An empty list means that there is nothing to do.
    fn changes(&self, desired: &Self::Desired, observed: &Self::Observed) -> Vec<Change>;

    /// What is wrong although nothing needs to change, if a type knows such.
    /// Asked after looking, not for a refresh.
    fn verdict(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
        _noop: bool,
    ) -> Result<(), StepError> {
        Ok(())
    }

    /// What a refresh would do, if it does anything for this type.
    fn refresh_change(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
    ) -> Option<Change> {
        None
    }

    /// What the resource is and needs, for the inferred order.
    fn relations(&self, _desired: &Self::Desired, _relations: &mut Relations) {}

    /// Whether looking takes microseconds: no command, no network. Such are
    /// handed to workers by the dozen.
    fn is_quick(&self, _desired: &Self::Desired) -> bool {
        false
    }

    /// Resources with the same key may be handed over as one group, where
    /// no order stands between them (packages of one manager).
    fn batch_key(&self, _desired: &Self::Desired) -> Option<String> {
        None
    }
}

/// The acting half. Only [`Provider::apply`] and [`Provider::refresh`] change
/// a machine, and both need [`Hands`].
pub trait Provider: ResourceType {
    /// Looks at the machine. Must not change it.
    fn observe(
        &self,
        desired: &Self::Desired,
        sight: &Sight<'_>,
    ) -> Result<Self::Observed, StepError>;

    /// Makes the changes that the type decided on.
    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError>;

    /// Does what [`ResourceType::refresh_change`] announced.
    fn refresh(
        &self,
        _desired: &Self::Desired,
        _observed: &Self::Observed,
        _hands: &Hands<'_>,
    ) -> Result<Applied, StepError> {
        Ok(Applied::default())
    }

    /// Observes a whole group at once, where that is cheaper. One answer for
    /// each, in order.
    fn observe_group(
        &self,
        group: &[(&Self::Desired, &Sight<'_>)],
    ) -> Vec<Result<Self::Observed, StepError>> {
        group
            .iter()
            .map(|(desired, sight)| self.observe(desired, sight))
            .collect()
    }

    /// Applies a whole group in one transaction, where the tools allow it.
    /// One answer for each, in order.
    fn apply_group(&self, group: &[Observation<'_, Self>]) -> Vec<Result<Applied, StepError>> {
        group.iter().map(|one| self.apply(one)).collect()
    }
}

/// A resource that has changes to make, as it should be and as it was observed.
pub struct Observation<'a, T: ResourceType + ?Sized> {
    pub desired: &'a T::Desired,
    pub observed: &'a T::Observed,
    pub changes: &'a [Change],
    pub hands: &'a Hands<'a>,
}

impl<'a, T: ResourceType + ?Sized> Observation<'a, T> {
    /// The declared and the observed state, the changes, and the hands to make
    /// them with.
    pub fn parts(&self) -> (&'a T::Desired, &'a T::Observed, &'a [Change], &'a Hands<'a>) {
        (self.desired, self.observed, self.changes, self.hands)
    }
}

/// Something on a machine that one resource provides and another needs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Thing {
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

/// What a resource is and what it needs, from which order is inferred.
///
/// An inferred edge gives way when it would close a cycle with declared ones.
#[derive(Default, Debug)]
pub struct Relations {
    pub(crate) provides: Vec<Thing>,
    pub(crate) needs: Vec<(Thing, &'static str)>,
    pub(crate) needs_above: Vec<PathBuf>,
    pub(crate) genius_needs: Vec<(Thing, &'static str)>,
    pub(crate) genius_above: Vec<(PathBuf, &'static str)>,
    pub(crate) serves: Vec<(Thing, &'static str)>,
}

impl Relations {
    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.provides.clear();
        self.needs.clear();
        self.needs_above.clear();
        self.genius_needs.clear();
        self.genius_above.clear();
        self.serves.clear();
    }

    /// The resource makes this thing be there.
    pub fn provides(&mut self, thing: Thing) {
        self.provides.push(thing);
    }

    /// An autorequire of Puppet: whoever provides the thing comes first.
    /// `why` completes "after X: …", as in "its owner".
    pub fn needs(&mut self, thing: Thing, why: &'static str) {
        self.needs.push((thing, why));
    }

    /// An autorequire of Puppet: the nearest managed path above this one comes first.
    pub fn needs_path_above(&mut self, path: impl Into<PathBuf>) {
        self.needs_above.push(path.into());
    }

    /// As [`Relations::needs`], but only where order is inferred beyond
    /// Puppet's rules (genius mode).
    pub fn genius_needs(&mut self, thing: Thing, why: &'static str) {
        self.genius_needs.push((thing, why));
    }

    /// As [`Relations::needs_path_above`], in genius mode only.
    pub fn genius_needs_above(&mut self, path: impl Into<PathBuf>, why: &'static str) {
        self.genius_above.push((path.into(), why));
    }

    /// Genius mode: this resource comes before whoever provides the thing
    /// (configuration before the service that reads it).
    pub fn genius_serves(&mut self, thing: Thing, why: &'static str) {
        self.serves.push((thing, why));
    }
}
