//! Determines what a run has to do, without changing anything.

use std::path::PathBuf;

use async_trait::async_trait;
use bunraku_model::Catalog;

use super::super::method::{PreparedRun, RunDescription, RunMethod, RunOrder, RunStartError};
use super::super::released::{ReleasedCatalog, released};
use super::delivered::{SourcePlaces, delivered};
use super::failure::PuppetFailure;
use super::invocation::{self, PuppetInput, RunFiles};
use super::state::PuppetState;
use super::work::PreparedPuppet;
use super::{PuppetForm, PuppetMethod};
use crate::catalogs::{CachedTarget, Catalogs, plugins_of};
use crate::plugins::Plugins;

/// A catalog for Puppet to apply.
pub(super) struct Delivery {
    known: CachedTarget,
    catalog: Catalog,
    pub(super) json: Vec<u8>,
    /// The directory of types, providers and facts from modules.
    plugins: Option<PathBuf>,
}

#[async_trait]
impl RunMethod for PuppetMethod {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn knows_environments(&self) -> bool {
        // A delivered catalog belongs to the environment that it was compiled in.
        self.released.is_none()
    }

    fn applies_released(&self) -> bool {
        self.released.is_some()
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError> {
        if let Some(tag) = order.tags.iter().find(|tag| !invocation::is_tag(tag)) {
            return Err(RunStartError::new(format!(
                "`{tag}` is not a valid tag for Puppet"
            )));
        }
        let program = self.program()?;
        let places = self.places.get(&program, &self.options).await?;
        let state = PuppetState::read(&places)
            .map_err(|error| RunStartError::because("cannot read Puppet's state", &error))?;
        if let PuppetState::Disabled { reason } = state {
            return Err(PuppetFailure::Disabled { reason }.into());
        }
        let mut order = order.clone();
        let directory = (self.fresh_directory()).map_err(|error| {
            RunStartError::because("cannot create a directory for the run's files", &error)
        })?;
        let files = RunFiles { directory };
        let delivery = match &self.released {
            Some(released) => Some(delivery(released, &mut order, &files).await?),
            None => None,
        };
        let what = match (&delivery, &self.options.form) {
            (Some(_), _) => PuppetInput::Delivered,
            (None, PuppetForm::Apply { manifest: None }) => {
                return Err(RunStartError::new("no manifest to apply"));
            }
            (None, _) => PuppetInput::Own,
        };
        let description = description(self, &order, delivery.as_ref());
        let plugins = delivery.as_ref().and_then(|one| one.plugins.as_deref());
        let arguments =
            invocation::arguments(&self.options, &order, what, &files, &places, plugins);
        Ok(Box::new(PreparedPuppet {
            is_agent: self.options.form == PuppetForm::Agent,
            program,
            arguments,
            places,
            files,
            order,
            delivery,
            description,
        }))
    }
}

/// Returns the prepared released catalog. Makes the order's mode as strict as the release's.
async fn delivery(
    (catalogs, plugins): &(Catalogs, Plugins),
    order: &mut RunOrder,
    files: &RunFiles,
) -> Result<Delivery, RunStartError> {
    let ReleasedCatalog {
        known,
        catalog,
        mode,
    } = released(catalogs, order).await?;
    order.mode = mode;
    let plugins = (plugins.for_catalog(plugins_of(&catalog)).await).map_err(|error| {
        RunStartError::because("the catalog's plugins are not on this node", &error)
    })?;
    let places = SourcePlaces {
        content: &|content| catalogs.cache.content(content),
        directories: files.sources(),
    };
    let (json, directories) = delivered(&catalog, order.id, &places)
        .map_err(|error| RunStartError::because("Puppet cannot apply the catalog", &error))?;
    for directory in &directories {
        (directory.create(&places)).map_err(|error| {
            RunStartError::because("a directory for Puppet cannot be created", &error)
        })?;
    }
    Ok(Delivery {
        known,
        catalog,
        json,
        plugins,
    })
}

fn description(
    method: &PuppetMethod,
    order: &RunOrder,
    delivery: Option<&Delivery>,
) -> RunDescription {
    let Some(delivery) = delivery else {
        return RunDescription {
            environment: (order.environment())
                .or(method.options.environment.as_ref())
                .cloned(),
            ..RunDescription::new(order.mode)
        };
    };
    let target = &delivery.known.target;
    RunDescription {
        mode: order.mode,
        environment: Some(target.environment.clone()),
        release: Some(target.release),
        catalog: Some(target.catalog),
        code_id: target.code_id.clone(),
        from_cache: delivery.known.from_cache,
        resources: delivery.catalog.resources.len() as u64,
    }
}
