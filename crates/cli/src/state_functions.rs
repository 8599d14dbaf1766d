//! The engine's meaning of state functions, for this machine's apply and for a server that
//! compiles.

use std::path::Path;
use std::sync::Arc;

use bunraku_compile::compiles::StateFunctions;
use bunraku_compile::state_world::FindStateFunctions;
use bunraku_engine::{Registry, StateFunction, TypeSpec};
use bunraku_module::VerifiedModule;
use bunraku_states::{Function, Lookup};

use crate::machine_modules::MachineModules;

impl FindStateFunctions for MachineModules {
    fn function(&self, name: &str) -> Lookup {
        let registry = self.with_state_function(name);
        look_up(registry.unwrap_or_else(|| self.registry()), name)
    }

    fn functions(&self) -> Vec<String> {
        names(self.registry())
    }
}

fn look_up(registry: &Registry, name: &str) -> Lookup {
    match registry.state_function(name) {
        Some((spec, function)) => Lookup::Known(described(spec, function)),
        None => {
            let module = name.split('.').next().unwrap_or(name);
            let known = names(registry)
                .iter()
                .any(|function| function.split('.').next() == Some(module));
            if known {
                Lookup::UnknownFunction
            } else {
                Lookup::UnknownModule
            }
        }
    }
}

fn names(registry: &Registry) -> Vec<String> {
    let all = registry.specs().flat_map(|spec| spec.states);
    all.map(|state| state.function.to_owned()).collect()
}

/// The engine's mapping of state functions, for a server that compiles.
pub(crate) struct EngineFunctions(Registry);

impl Default for EngineFunctions {
    fn default() -> Self {
        Self(Registry::standard())
    }
}

impl std::fmt::Debug for EngineFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineFunctions")
    }
}

impl FindStateFunctions for EngineFunctions {
    fn function(&self, name: &str) -> Lookup {
        look_up(&self.0, name)
    }

    fn functions(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl StateFunctions for EngineFunctions {
    fn with_modules(&self, modules: &[VerifiedModule]) -> Result<Arc<dyn StateFunctions>, String> {
        let mut registry = Registry::standard();
        for module in modules {
            // The module is never unpacked or run here. Only its declarations matter.
            let added = registry.add_module(module, Path::new("/nonexistent"));
            added.map_err(|error| error.to_string())?;
        }
        Ok(Arc::new(Self(registry)))
    }
}

fn described(spec: &TypeSpec, function: &StateFunction) -> Function {
    let owned = |text: &str| text.to_owned();
    Function {
        type_name: spec.name.to_owned(),
        implies: function
            .implies
            .iter()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect(),
        arguments: (function.arguments.iter())
            .map(|argument| (owned(argument.salt), owned(argument.ours)))
            .collect(),
        name_parameter: spec.name_parameter.to_owned(),
        parameters: spec
            .parameters
            .iter()
            .map(|parameter| owned(parameter.name))
            .collect(),
    }
}
