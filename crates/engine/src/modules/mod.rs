//! Types that extension modules add: another program observes and applies, and the
//! decision stays here.
//!
//! The split is the same as for built-in types: a module reports what it sees, [`kind`]
//! decides purely what differs, and `apply` is called only when the run may change
//! things. Only a [`bunraku_module::VerifiedModule`] gets into a registry, so nothing runs
//! whose signature was not checked. Every answer is checked against the signed
//! manifest. A module that hangs, dies, prints garbage or lies fails its resource, and
//! its whole process group is killed.
//!
//! Absent on purpose: the network, and the decision which keys to trust.

mod kind;
mod program;
mod session;
mod spec;
mod store;
#[cfg(test)]
mod tests;
mod unpacked;

pub use program::ModuleError;
pub use store::{ModuleStore, PinError, ShelfError, check_pins, read_trust};

use bunraku_module::VerifiedModule;

use crate::Registry;
use kind::ModuleType;
use program::Program;

impl Registry {
    /// Adds the types of a module. Its files are unpacked below the state directory
    /// when it gets its first request. They are removed when the registry and every
    /// plan made with it are dropped.
    pub fn add_module(
        &mut self,
        module: &VerifiedModule,
        state_directory: &std::path::Path,
    ) -> Result<(), ModuleError> {
        let manifest = module.manifest();
        for entry in &manifest.types {
            if self.knows(&entry.name) {
                return Err(ModuleError::Taken {
                    module: manifest.name.clone(),
                    name: entry.name.clone(),
                });
            }
        }
        let program = Program::new(module, state_directory);
        for entry in &manifest.types {
            self.add(ModuleType {
                spec: spec::of(module.content(), entry),
                entry: entry.clone(),
                program: std::sync::Arc::clone(&program),
            });
        }
        self.modules += 1;
        Ok(())
    }
}
