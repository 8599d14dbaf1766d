//! Dependencies from catalogs: a node reads an output of another.

use super::units::{UnitDependency, Units};
use crate::site::Site;

/// Makes every component on the reader wait for every component on the source, because it is
/// not known here which of a node's components a state belongs to.
pub(super) fn add(site: &Site, units: &mut Units, warnings: &mut Vec<String>) {
    for read in &site.reads {
        let on = |node: &str| -> Vec<usize> {
            let units = units.list.iter().enumerate();
            let there = units.filter(|(_, unit)| unit.node.as_str() == node);
            there.map(|(at, _)| at).collect()
        };
        let (readers, sources) = (on(&read.reader), on(&read.source));
        // A node's own outputs exist by the time it needs them.
        if readers.is_empty() || read.reader == read.source {
            continue;
        }
        if sources.is_empty() {
            warnings.push(format!(
                "{} reads the output `{}` of {}, which is not in this plan: the last registered value is used",
                read.reader, read.name, read.source
            ));
        }
        for reader in readers {
            units.needs[reader].extend(sources.iter().map(|from| UnitDependency {
                from: *from,
                capability: Some(format!("output `{}`", read.name)),
                through: Vec::new(),
            }));
        }
    }
}
