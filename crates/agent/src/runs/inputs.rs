//! Outputs of other nodes that a catalog reads, requested before a run.
//!
//! A missing output does not prevent the run from starting. The state that reads it fails with the
//! reason, and the others continue.

use bunraku_engine::OtherNodeOutputs;
use bunraku_model::Catalog;
use bunraku_wire::api::{Cause, Target};
use bunraku_wire::endpoints::{Endpoint, InputsQuery, ListInputs};

use crate::catalogs::Catalogs;

/// Returns all outputs of other nodes that the catalog reads.
pub(super) async fn inputs(
    catalogs: &Catalogs,
    target: &Target,
    catalog: &Catalog,
    causes: &[Cause],
) -> OtherNodeOutputs {
    let mut others = OtherNodeOutputs::default();
    let reads = |resource: &bunraku_model::catalog::Resource| {
        resource.other.contains_key("reads_from_nodes")
    };
    if !catalog.resources.iter().any(reads) {
        return others;
    }
    let run = causes.iter().find_map(|cause| match cause {
        Cause::Run { run } => Some(*run),
        _ => None,
    });
    let query = InputsQuery {
        catalog: target.catalog,
        run,
    };
    let at = ListInputs.with_query(catalogs.node(), &query);
    match catalogs.client().call(at).await {
        Ok(inputs) => {
            for input in inputs {
                let value = input.value.ok_or_else(|| {
                    (input.missing).unwrap_or_else(|| "the server has no such output".to_owned())
                });
                others.give(&input.read.node, &input.read.name, value);
            }
        }
        Err(error) => {
            tracing::warn!(error = %error, "cannot request outputs of other nodes");
            others.give_nothing(format!("no server was reachable: {error}"));
        }
    }
    others
}
