//! The outputs of other nodes that a catalog reads.

use bunraku_model::Catalog;
use bunraku_wire::api::outputs::OutputRead;
use serde_json::Value;

/// Returns the outputs of other nodes that a catalog's resources read, each once.
pub(crate) fn reads_of(catalog: &Catalog) -> Vec<OutputRead> {
    let text = |read: &Value, member: &str| Some(read.get(member)?.as_str()?.to_owned());
    let mut reads: Vec<OutputRead> = (catalog.resources.iter())
        .filter_map(|resource| resource.other.get("reads_from_nodes")?.as_array())
        .flatten()
        .filter_map(|read| {
            Some(OutputRead {
                node: text(read, "node")?,
                name: text(read, "register")?,
            })
        })
        .collect();
    reads.sort();
    reads.dedup();
    reads
}
