//! Checks that at most one part decides while the servers are partitioned.
//!
//! A decision belongs to a cut if it was requested after the last link was cut and
//! acknowledged before the first one was restored. The check does not need to know
//! which part has the majority: two deciding parts are one too many.

use std::collections::BTreeMap;

use super::at;
use crate::history::{History, NetworkCut, Server};

pub(super) fn check(history: &History) -> Vec<String> {
    history
        .cuts
        .iter()
        .filter_map(|cut| {
            let decided = decided(history, cut);
            (decided.len() > 1).then(|| {
                format!(
                    "cut into {:?} from {} to {}, and more than one side decided: {}",
                    cut.sides,
                    at(cut.begun),
                    at(cut.ended),
                    decided.into_values().collect::<Vec<_>>().join("; ")
                )
            })
        })
        .collect()
}

/// Returns an example decision of each side.
fn decided(history: &History, cut: &NetworkCut) -> BTreeMap<usize, String> {
    let side = |server: Server| cut.sides.iter().position(|side| side.contains(&server));
    let mut decided = BTreeMap::new();
    for operation in history.acknowledged() {
        let within = operation.begun >= cut.begun && operation.ended <= cut.ended;
        let side = operation.server.and_then(side);
        if let (true, true, Some(side)) = (within, operation.call.decides(), side) {
            decided
                .entry(side)
                .or_insert_with(|| format!("{:?}", operation.call));
        }
    }
    for change in &history.end.changes {
        let within = change.at >= cut.begun && change.at <= cut.ended;
        if let (true, Some(side)) = (within, side(change.by)) {
            decided
                .entry(side)
                .or_insert_with(|| format!("a change of the datastores: {}", change.what));
        }
    }
    decided
}
