//! Slots limit the number of concurrent compiles on a server.
//!
//! Environments share the slots, first come, first served. Code that never ends
//! could hold all of them until its time limit. Therefore an environment that
//! holds no slot waits only for a while, and then receives an additional one.
//! So there are at most as many additional slots as environments.

use std::collections::HashMap;
use std::time::Duration;

use bunraku_model::EnvironmentName;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::compile_failure::CompileFailure;

/// How long an environment without a slot waits for a shared one.
const PATIENCE: Duration = Duration::from_secs(5);

/// The slots of a server.
pub struct CompileSlots {
    shared: Semaphore,
    /// The number of slots that each environment holds, without zeros.
    held: watch::Sender<HashMap<EnvironmentName, usize>>,
}

/// The slots of a server as one environment may use them.
pub struct EnvironmentSlots<'a> {
    slots: &'a CompileSlots,
    environment: &'a EnvironmentName,
}

/// A slot, which is free again when this is dropped.
pub struct CompileSlot<'a> {
    slots: &'a CompileSlots,
    environment: &'a EnvironmentName,
    /// Nothing if the slot is an additional one.
    _shared: Option<SemaphorePermit<'a>>,
}

impl CompileSlots {
    pub fn new(count: usize) -> Self {
        Self {
            shared: Semaphore::new(count),
            held: watch::Sender::default(),
        }
    }

    pub fn of<'a>(&'a self, environment: &'a EnvironmentName) -> EnvironmentSlots<'a> {
        EnvironmentSlots {
            slots: self,
            environment,
        }
    }
}

impl<'a> EnvironmentSlots<'a> {
    /// Waits for a slot.
    pub async fn take(&self) -> Result<CompileSlot<'a>, CompileFailure> {
        tokio::select! {
            biased;
            permit = self.slots.shared.acquire() => {
                let permit = permit.map_err(CompileFailure::temporary)?;
                self.slots.held.send_modify(|held| {
                    *held.entry(self.environment.clone()).or_default() += 1;
                });
                Ok(self.slot(Some(permit)))
            }
            () = self.take_additional() => Ok(self.slot(None)),
        }
    }

    /// Waits until the environment was patient and holds no slot, and counts one for it.
    async fn take_additional(&self) {
        tokio::time::sleep(PATIENCE).await;
        let mut held = self.slots.held.subscribe();
        loop {
            let taken = self.slots.held.send_if_modified(|held| {
                let holds_none = !held.contains_key(self.environment);
                if holds_none {
                    held.insert(self.environment.clone(), 1);
                }
                holds_none
            });
            if taken {
                return;
            }
            // The sender lives as long as the slots, so this cannot fail.
            let _ = held
                .wait_for(|held| !held.contains_key(self.environment))
                .await;
        }
    }

    fn slot(&self, shared: Option<SemaphorePermit<'a>>) -> CompileSlot<'a> {
        CompileSlot {
            slots: self.slots,
            environment: self.environment,
            _shared: shared,
        }
    }
}

impl Drop for CompileSlot<'_> {
    fn drop(&mut self) {
        self.slots.held.send_modify(|held| {
            if let Some(count) = held.get_mut(self.environment) {
                *count -= 1;
                if *count == 0 {
                    held.remove(self.environment);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> EnvironmentName {
        name.parse().expect("a name")
    }

    async fn is_refused(slots: &EnvironmentSlots<'_>) -> bool {
        let hour = Duration::from_secs(3600);
        tokio::time::timeout(hour, slots.take()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_environment_has_a_slot_however_long_others_hold_theirs() {
        let slots = CompileSlots::new(2);
        let names = ["hostile", "second", "third"].map(environment);
        let [hostile, second, third] = names.each_ref().map(|name| slots.of(name));
        let _held = [hostile.take().await, hostile.take().await];
        assert!(is_refused(&hostile).await, "it holds all shared slots");
        let additional = second.take().await.expect("an additional slot");
        assert!(is_refused(&second).await, "there is only one");
        let _other = third.take().await.expect("its own additional slot");
        drop(additional);
        let _again = second.take().await.expect("free again");
    }

    #[tokio::test(start_paused = true)]
    async fn shared_slots_come_first_and_are_never_exceeded_by_one_environment() {
        let slots = CompileSlots::new(1);
        let name = environment("production");
        let production = slots.of(&name);
        let first = production.take().await.expect("a shared slot");
        let started = tokio::time::Instant::now();
        assert!(is_refused(&production).await);
        drop(first);
        let _second = production.take().await.expect("the shared slot");
        assert_eq!(slots.shared.available_permits(), 0);
        assert_eq!(started.elapsed(), Duration::from_secs(3600), "no delay");
    }

    #[tokio::test(start_paused = true)]
    async fn two_compiles_of_an_environment_share_its_additional_slot() {
        let slots = CompileSlots::new(1);
        let names = ["hostile", "production"].map(environment);
        let _held = slots.of(&names[0]).take().await;
        let production = slots.of(&names[1]);
        let one = async { production.take().await.map(drop) };
        let other = async { production.take().await.map(drop) };
        let (one, other) = tokio::join!(one, other);
        assert!(one.is_ok() && other.is_ok());
    }
}
