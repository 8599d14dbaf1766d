//! One interface for all types, so that the executor knows none of them.

use std::any::Any;
use std::sync::Arc;

use crate::resource_type::Observation;
use crate::{
    Applied, Change, Declaration, Hands, Provider, Refusal, Relations, Sight, StepError, TypeSpec,
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
    fn observe(&self, sight: &Sight<'_>) -> Result<Observing, StepError>;
    fn apply(&self, observing: &Observing, hands: &Hands<'_>) -> Result<Applied, StepError>;
    fn verdict(&self, observing: &Observing, noop: bool) -> Result<(), StepError>;
    fn refresh_change(&self, observing: &Observing) -> Option<Change>;
    fn refresh(&self, observing: &Observing, hands: &Hands<'_>) -> Result<Applied, StepError>;
    /// Observes a group. All members are of the same type, as they have the same batch key.
    fn observe_group(
        &self,
        group: &[(&dyn AnyInstance, Sight<'_>)],
    ) -> Vec<Result<Observing, StepError>>;
    fn apply_group(
        &self,
        group: &[(&dyn AnyInstance, &Observing, Hands<'_>)],
    ) -> Vec<Result<Applied, StepError>>;
    fn desired(&self) -> &dyn Any;
}

/// The observed state, and the changes to make.
pub(crate) struct Observing {
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
    fn decided(&self, desired: &T::Desired, observed: T::Observed) -> Observing {
        let changes = self.of.changes(desired, &observed);
        Observing {
            observed: Box::new(observed),
            changes,
        }
    }

    fn seen<'a>(&self, observing: &'a Observing) -> &'a T::Observed {
        (observing.observed.downcast_ref()).expect("an instance gets back what it observed itself")
    }

    fn wish(instance: &dyn AnyInstance) -> &T::Desired {
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

    fn observe(&self, sight: &Sight<'_>) -> Result<Observing, StepError> {
        let observed = self.of.observe(&self.desired, sight)?;
        Ok(self.decided(&self.desired, observed))
    }

    fn apply(&self, observing: &Observing, hands: &Hands<'_>) -> Result<Applied, StepError> {
        self.of.apply(&Observation {
            desired: &self.desired,
            observed: self.seen(observing),
            changes: &observing.changes,
            hands,
        })
    }

    fn verdict(&self, observing: &Observing, noop: bool) -> Result<(), StepError> {
        self.of.verdict(&self.desired, self.seen(observing), noop)
    }

    fn refresh_change(&self, observing: &Observing) -> Option<Change> {
        self.of.refresh_change(&self.desired, self.seen(observing))
    }

    fn refresh(&self, observing: &Observing, hands: &Hands<'_>) -> Result<Applied, StepError> {
        self.of.refresh(&self.desired, self.seen(observing), hands)
    }

    fn observe_group(
        &self,
        group: &[(&dyn AnyInstance, Sight<'_>)],
    ) -> Vec<Result<Observing, StepError>> {
        let typed: Vec<_> = (group.iter())
            .map(|(one, sight)| (Self::wish(*one), sight))
            .collect();
        let answers = self.of.observe_group(&typed);
        (typed.iter().zip(answers))
            .map(|((desired, _), answer)| Ok(self.decided(desired, answer?)))
            .collect()
    }

    fn apply_group(
        &self,
        group: &[(&dyn AnyInstance, &Observing, Hands<'_>)],
    ) -> Vec<Result<Applied, StepError>> {
        let typed: Vec<_> = group
            .iter()
            .map(|(one, observing, hands)| Observation::<'_, T> {
                desired: Self::wish(*one),
                observed: self.seen(observing),
                changes: &observing.changes,
                hands,
            })
            .collect();
        self.of.apply_group(&typed)
    }

    fn desired(&self) -> &dyn Any {
        &self.desired
    }
}
