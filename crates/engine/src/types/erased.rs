//! One interface for all types, so that the executor knows none of them.

use std::any::Any;
use std::sync::Arc;

use crate::resource_type::Observation;
use crate::{
    ApplyResult, Change, Declaration, Provider, ReadAccess, Refusal, Relations, StepError,
    TypeSpec, WriteAccess,
};

/// A type without its associated types.
pub(crate) trait AnyType: Send + Sync {
    fn spec(&self) -> &'static TypeSpec;
    fn prepare(self: Arc<Self>, declaration: &Declaration)
    -> Result<Box<dyn AnyInstance>, Refusal>;
}

/// One resource, checked.
pub(crate) trait AnyInstance: Send + Sync {
    fn relations(&self, relations: &mut Relations);
    fn batch_key(&self) -> Option<String>;
    fn is_quick(&self) -> bool;
    fn observe(&self, access: &ReadAccess<'_>) -> Result<PendingResource, StepError>;
    fn apply(
        &self,
        observing: &PendingResource,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError>;
    fn verdict(&self, observing: &PendingResource, noop: bool) -> Result<(), StepError>;
    fn unchanged_message(&self, observing: &PendingResource) -> Option<String>;
    fn undoes_drift(&self, observing: &PendingResource) -> bool;
    fn refresh_change(&self, observing: &PendingResource) -> Option<Change>;
    fn refresh(
        &self,
        observing: &PendingResource,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError>;
    /// Observes a group. All members are of the same type, as they have the same batch key.
    fn observe_group(
        &self,
        group: &[(&dyn AnyInstance, ReadAccess<'_>)],
    ) -> Vec<Result<PendingResource, StepError>>;
    fn apply_group(
        &self,
        group: &[(&dyn AnyInstance, &PendingResource, WriteAccess<'_>)],
    ) -> Vec<Result<ApplyResult, StepError>>;
    fn desired(&self) -> &dyn Any;
}

/// The observed state, and the changes to make.
pub(crate) struct PendingResource {
    observed: Box<dyn Any + Send>,
    pub(crate) changes: Vec<Change>,
}

struct Instance<T: Provider> {
    of: Arc<T>,
    desired: T::Desired,
}

impl<T: Provider> AnyType for T {
    fn spec(&self) -> &'static TypeSpec {
        crate::ResourceType::spec(self)
    }

    fn prepare(
        self: Arc<Self>,
        declaration: &Declaration,
    ) -> Result<Box<dyn AnyInstance>, Refusal> {
        let desired = self.desire(declaration)?;
        Ok(Box::new(Instance { of: self, desired }))
    }
}

impl<T: Provider> Instance<T> {
    fn decided(&self, desired: &T::Desired, observed: T::Observed) -> PendingResource {
        let changes = self.of.changes(desired, &observed);
        PendingResource {
            observed: Box::new(observed),
            changes,
        }
    }

    fn observed<'a>(&self, observing: &'a PendingResource) -> &'a T::Observed {
        (observing.observed.downcast_ref()).expect("an instance gets back what it observed itself")
    }

    fn desired(instance: &dyn AnyInstance) -> &T::Desired {
        (instance.desired().downcast_ref()).expect("a group is of one type")
    }
}

impl<T: Provider> AnyInstance for Instance<T> {
    fn relations(&self, relations: &mut Relations) {
        self.of.relations(&self.desired, relations);
    }

    fn batch_key(&self) -> Option<String> {
        let key = self.of.batch_key(&self.desired)?;
        Some(format!(
            "{}/{key}",
            crate::ResourceType::spec(&*self.of).name
        ))
    }

    fn is_quick(&self) -> bool {
        self.of.is_quick(&self.desired)
    }

    fn observe(&self, access: &ReadAccess<'_>) -> Result<PendingResource, StepError> {
        let observed = self.of.observe(&self.desired, access)?;
        Ok(self.decided(&self.desired, observed))
    }

    fn apply(
        &self,
        observing: &PendingResource,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        self.of.apply(&Observation {
            desired: &self.desired,
            observed: self.observed(observing),
            changes: &observing.changes,
            write_access,
        })
    }

    fn verdict(&self, observing: &PendingResource, noop: bool) -> Result<(), StepError> {
        self.of
            .verdict(&self.desired, self.observed(observing), noop)
    }

    fn unchanged_message(&self, observing: &PendingResource) -> Option<String> {
        self.of
            .unchanged_message(&self.desired, self.observed(observing))
    }

    fn undoes_drift(&self, observing: &PendingResource) -> bool {
        self.of
            .undoes_drift(&self.desired, self.observed(observing))
    }

    fn refresh_change(&self, observing: &PendingResource) -> Option<Change> {
        self.of
            .refresh_change(&self.desired, self.observed(observing))
    }

    fn refresh(
        &self,
        observing: &PendingResource,
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        self.of
            .refresh(&self.desired, self.observed(observing), write_access)
    }

    fn observe_group(
        &self,
        group: &[(&dyn AnyInstance, ReadAccess<'_>)],
    ) -> Vec<Result<PendingResource, StepError>> {
        let typed: Vec<_> = (group.iter())
            .map(|(one, access)| (Self::desired(*one), access))
            .collect();
        let answers = self.of.observe_group(&typed);
        (typed.iter().zip(answers))
            .map(|((desired, _), answer)| Ok(self.decided(desired, answer?)))
            .collect()
    }

    fn apply_group(
        &self,
        group: &[(&dyn AnyInstance, &PendingResource, WriteAccess<'_>)],
    ) -> Vec<Result<ApplyResult, StepError>> {
        let typed: Vec<_> = group
            .iter()
            .map(|(one, observing, write_access)| Observation::<'_, T> {
                desired: Self::desired(*one),
                observed: self.observed(observing),
                changes: &observing.changes,
                write_access,
            })
            .collect();
        self.of.apply_group(&typed)
    }

    fn desired(&self) -> &dyn Any {
        &self.desired
    }
}
