//! The catalog of a run, for every method that applies our catalogs.

use bunraku_model::Catalog;
use bunraku_wire::api::{RunMode, RunSubject};

use super::method::{RunOrder, RunStartError};
use crate::catalogs::{CachedTarget, Catalogs};

/// A released catalog that is complete on this node.
pub(super) struct ReleasedCatalog {
    pub(super) known: CachedTarget,
    pub(super) catalog: Catalog,
    /// The mode, which is as strict as the order and the release.
    pub(super) mode: RunMode,
}

/// Returns the catalog that an ordered run planned, whatever was released since. Without a plan,
/// returns the newest catalog, if it is the one that the order requests.
pub(super) async fn released(
    catalogs: &Catalogs,
    order: &RunOrder,
) -> Result<ReleasedCatalog, RunStartError> {
    let known = match order.planned_catalog() {
        Some(planned) => CachedTarget {
            target: planned.clone().into(),
            from_cache: false,
        },
        None => newest(catalogs, order).await?,
    };
    let catalog = (catalogs.complete_for_run(&known.target).await).map_err(|error| {
        let what = match order.planned_catalog() {
            Some(_) => "the planned catalog is not on this node",
            None => "the released catalog is not on this node",
        };
        RunStartError::because(what, &error)
    })?;
    let mode = match (known.target.mode, order.mode) {
        (RunMode::Enforce, RunMode::Enforce) => RunMode::Enforce,
        // A catalog that was delivered for noop only is never enforced.
        _ => RunMode::Noop,
    };
    Ok(ReleasedCatalog {
        known,
        catalog,
        mode,
    })
}

async fn newest(catalogs: &Catalogs, order: &RunOrder) -> Result<CachedTarget, RunStartError> {
    let known =
        (catalogs.newest().await).map_err(|error| RunStartError::because("no catalog", &error))?;
    if let RunSubject::Catalog {
        release, catalog, ..
    } = &order.subject
        && *catalog != known.target.catalog
    {
        return Err(RunStartError::new(format!(
            "catalog {} of release {release} was requested, but release {} assigns {} to this node",
            catalog.0.short(),
            known.target.release,
            known.target.catalog.0.short()
        )));
    }
    Ok(known)
}
