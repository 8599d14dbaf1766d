//! The extension modules of this machine, read when something first needs a type that is not built
//! in.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bunraku_engine::Registry;
use bunraku_engine::modules::{
    ModuleError, ModuleStore, PinError, ShelfError, check_pins, read_trust,
};
use bunraku_model::Catalog;
use bunraku_module::VerifiedModule;

/// The location of trusted keys and of the engine's record.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// Directory with trusted module keys (`*.pub`) and the list of revoked keys (`revoked`).
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/etc/bunraku/module-keys",
        env = "BUNRAKU_MODULE_KEYS"
    )]
    pub(crate) module_keys: PathBuf,
}

/// The locations of extension modules.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ModuleArgs {
    /// Directory with extension modules, in addition to installed ones; repeatable.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) module_dir: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

/// The reason why modules cannot be used. No part of them was run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModulesError {
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error(transparent)]
    Pin(#[from] PinError),
}

/// The built-in types, and the types of modules once they are needed.
pub(crate) struct MachineModules {
    standard: Registry,
    directories: Vec<PathBuf>,
    keys: PathBuf,
    state_directory: PathBuf,
    /// Records the versions of modules. Only a run that may change things does so.
    remember: bool,
    loaded: OnceLock<Result<LoadedModules, Arc<ModulesError>>>,
}

struct LoadedModules {
    modules: Vec<VerifiedModule>,
    registry: Registry,
}

impl MachineModules {
    pub(crate) fn new(arguments: &ModuleArgs, state_directory: &Path, remember: bool) -> Arc<Self> {
        Arc::new(Self {
            standard: Registry::standard(),
            directories: arguments.module_dir.clone(),
            keys: arguments.keys.module_keys.clone(),
            state_directory: state_directory.to_owned(),
            remember,
            loaded: OnceLock::new(),
        })
    }

    fn load(&self) -> Result<LoadedModules, ModulesError> {
        let trust = read_trust(&self.keys)?;
        let shelf = ModuleStore::new(&self.state_directory);
        let modules = shelf.load(&self.directories, &trust, self.remember)?;
        let mut registry = Registry::standard();
        for module in &modules {
            registry.add_module(module, &self.state_directory)?;
        }
        Ok(LoadedModules { modules, registry })
    }

    fn loaded(&self) -> Result<&LoadedModules, Arc<ModulesError>> {
        let loaded = (self.loaded).get_or_init(|| self.load().map_err(Arc::new));
        loaded.as_ref().map_err(Arc::clone)
    }

    /// Returns the registry that has a state function, if there is one.
    pub(crate) fn with_state_function(&self, function: &str) -> Option<&Registry> {
        if self.standard.state_function(function).is_some() {
            return Some(&self.standard);
        }
        let loaded = self.loaded().ok()?;
        let known = loaded.registry.state_function(function).is_some();
        known.then_some(&loaded.registry)
    }

    /// Returns the registry of every type known so far.
    pub(crate) fn registry(&self) -> &Registry {
        match self.loaded.get() {
            Some(Ok(loaded)) => &loaded.registry,
            _ => &self.standard,
        }
    }

    /// Returns the registry for a catalog and checks the catalog's pins. Modules that are not
    /// needed are not read, unless the compiler has already read them.
    pub(crate) fn for_catalog(&self, catalog: &Catalog) -> Result<Registry, Arc<ModulesError>> {
        let unknown =
            |resource: &bunraku_model::catalog::Resource| !self.standard.knows(&resource.type_name);
        let needed = self.loaded.get().is_some()
            || catalog.other.contains_key("modules")
            || catalog.resources.iter().any(unknown);
        if !needed {
            return Ok(self.standard.clone());
        }
        let loaded = self.loaded()?;
        check_pins(catalog, &loaded.modules).map_err(|error| Arc::new(error.into()))?;
        Ok(loaded.registry.clone())
    }
}
