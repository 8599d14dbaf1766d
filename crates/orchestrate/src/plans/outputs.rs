//! Outputs that a plan's catalogs read, and that no catalog registers.

use std::collections::{BTreeMap, HashSet};

use bunraku_control::ServiceError;
use bunraku_model::{Catalog, CatalogId, NodeName};
use bunraku_plan::RunPlan;

use super::{Plans, planned_catalogs};
use crate::output_reads::reads_of;

impl Plans {
    /// Returns a warning for each output that a planned catalog reads, and that the catalog of the
    /// other node does not register.
    pub(super) async fn unregistered(&self, plan: &RunPlan) -> Result<Vec<String>, ServiceError> {
        let planned = planned_catalogs(plan);
        let mut registered: BTreeMap<String, Option<HashSet<String>>> = BTreeMap::new();
        let mut warnings = Vec::new();
        for (node, one) in &planned {
            if self.reads_nothing(node, one.catalog).await? {
                continue;
            }
            for read in reads_of(&self.catalogs.get(one.catalog).await?) {
                if !registered.contains_key(&read.node) {
                    let of_node = planned.iter().find(|(name, _)| name.as_str() == read.node);
                    let of_node = of_node.map(|(_, other)| other.catalog);
                    let names = self.names_of(&read.node, of_node).await?;
                    registered.insert(read.node.clone(), names);
                }
                let reason = match &registered[&read.node] {
                    Some(names) if names.contains(&read.name) => continue,
                    Some(_) => "no resource in its catalog registers it",
                    None => "that node has no released catalog",
                };
                warnings.push(format!(
                    "{node} reads the output `{}` of {}, but {reason}",
                    read.name, read.node
                ));
            }
        }
        Ok(warnings)
    }

    /// Returns whether a catalog reads no outputs. Compiling recorded that for the newest one.
    async fn reads_nothing(
        &self,
        node: &NodeName,
        catalog: CatalogId,
    ) -> Result<bool, ServiceError> {
        let compiled = self.compiled(node).await?;
        Ok(compiled.is_some_and(|compiled| {
            compiled.catalog == catalog && compiled.reads_from_nodes.is_empty()
        }))
    }

    /// Returns the names that a node's planned or released catalog registers, if it has one.
    async fn names_of(
        &self,
        node: &str,
        planned: Option<CatalogId>,
    ) -> Result<Option<HashSet<String>>, ServiceError> {
        let catalog = match (planned, NodeName::new(node)) {
            (Some(planned), _) => Some(planned),
            (None, Ok(node)) => self.target(&node).await?.map(|target| target.catalog),
            (None, Err(_)) => None,
        };
        match catalog {
            Some(catalog) => Ok(Some(registered_names(&self.catalogs.get(catalog).await?))),
            None => Ok(None),
        }
    }
}

fn registered_names(catalog: &Catalog) -> HashSet<String> {
    let resources = catalog.resources.iter();
    let names = resources.filter_map(|resource| resource.parameters.get("register")?.as_str());
    names.map(str::to_owned).collect()
}
