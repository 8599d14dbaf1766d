//! The catalogs of a run: held from its creation until it cannot be resumed any more.
//!
//! A crash between the plan and the record of a run leaves a plan without a record, and its holds.
//! Both are removed later ([`Plans::unpin`] with that plan).

use std::collections::BTreeSet;

use bunraku_compile::catalogs::CatalogError;
use bunraku_control::ServiceError;
use bunraku_model::{CatalogId, RunId};
use bunraku_plan::RunPlan;
use bunraku_store::{Swap, Transaction, compare_and_swap, settle};

use super::{Plans, planned_catalogs};

/// Number of catalogs held in one transaction: one compare and two operations each.
const HELD_TOGETHER: usize = 24;
const RELEASED_TOGETHER: usize = 100;

impl Plans {
    /// Holds every catalog of the plan for a run.
    pub(crate) async fn pin(&self, run: RunId, plan: &RunPlan) -> Result<(), ServiceError> {
        let holder = &holder(run);
        for some in catalogs(plan).chunks(HELD_TOGETHER) {
            let held = compare_and_swap(&*self.store, |_| async move {
                let mut transaction = Transaction::new();
                for catalog in some {
                    let held = self.catalogs.hold_in(transaction, *catalog, holder);
                    transaction = held.await?;
                }
                Ok::<_, CatalogError>(Swap::Write(transaction, ()))
            });
            match held.await {
                Err(CatalogError::Missing(catalog)) => {
                    return Err(ServiceError::conflict(
                        format!(
                            "catalog {} of the plan is no longer stored",
                            catalog.0.short()
                        ),
                        "plan the run again",
                    ));
                }
                held => held?,
            }
        }
        Ok(())
    }

    /// Ends the holds of a run.
    pub(crate) async fn unpin(&self, run: RunId, plan: &RunPlan) -> Result<(), ServiceError> {
        let holder = holder(run);
        for some in catalogs(plan).chunks(RELEASED_TOGETHER) {
            let transaction = some
                .iter()
                .fold(Transaction::new(), |transaction, catalog| {
                    self.catalogs.release_in(transaction, *catalog, &holder)
                });
            settle(&*self.store, transaction).await?;
        }
        Ok(())
    }
}

/// Returns the name under which a run holds its catalogs.
fn holder(run: RunId) -> String {
    format!("runs/{run}")
}

fn catalogs(plan: &RunPlan) -> Vec<CatalogId> {
    let distinct: BTreeSet<CatalogId> = planned_catalogs(plan)
        .into_values()
        .map(|planned| planned.catalog)
        .collect();
    distinct.into_iter().collect()
}
