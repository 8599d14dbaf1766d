//! Determines what a run has to do, without changing anything.

use async_trait::async_trait;
use bunraku_model::Catalog;

use super::super::method::{NotStarted, PreparedRun, RunDescription, RunMethod, RunOrder};
use super::super::released::{Released, released};
use super::delivered::delivered;
use super::failure::PuppetFailure;
use super::invocation::{self, RunFiles, What};
use super::state::PuppetState;
use super::work::PreparedPuppet;
use super::{PuppetForm, PuppetMethod};
use crate::catalogs::{Catalogs, KnownTarget};

/// A catalog for Puppet to apply.
pub(super) struct Delivery {
    known: KnownTarget,
    catalog: Catalog,
    pub(super) json: Vec<u8>,
}

#[async_trait]
impl RunMethod for PuppetMethod {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn knows_environments(&self) -> bool {
        // A delivered catalog belongs to the environment that it was compiled in.
        self.catalogs.is_none()
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, NotStarted> {
        if let Some(tag) = order.tags.iter().find(|tag| !invocation::is_tag(tag)) {
            return Err(NotStarted::new(format!("`{tag}` is no tag for Puppet")));
        }
        let program = self.program()?;
        let places = self.places.get(&program, &self.options).await?;
        let state = PuppetState::look(&places)
            .map_err(|error| NotStarted::because("Puppet's state cannot be read", &error))?;
        if let PuppetState::Disabled { reason } = state {
            return Err(PuppetFailure::Disabled { reason }.into());
        }
        let mut order = order.clone();
        let delivery = match &self.catalogs {
            Some(catalogs) => Some(delivery(catalogs, &mut order).await?),
            None => None,
        };
        let what = match (&delivery, &self.options.form) {
            (Some(_), _) => What::Delivered,
            (None, PuppetForm::Apply { manifest: None }) => {
                return Err(NotStarted::new("there is no manifest to apply"));
            }
            (None, _) => What::Own,
        };
        let directory = (self.fresh_directory()).map_err(|error| {
            NotStarted::because("there is no place for the run's files", &error)
        })?;
        let files = RunFiles { directory };
        let description = description(self, &order, delivery.as_ref());
        let arguments = invocation::arguments(&self.options, &order, what, &files, &places);
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
async fn delivery(catalogs: &Catalogs, order: &mut RunOrder) -> Result<Delivery, NotStarted> {
    let Released {
        known,
        catalog,
        mode,
    } = released(catalogs, order).await?;
    order.mode = mode;
    let json = delivered(&catalog, order.id, |content| {
        catalogs.cache.content(content)
    })
    .map_err(|error| NotStarted::because("Puppet cannot carry out the catalog", &error))?;
    Ok(Delivery {
        known,
        catalog,
        json,
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
