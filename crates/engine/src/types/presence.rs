//! `ensure => present` or `absent`, which most types have.

use serde_json::{Value, json};

use crate::{Change, Declaration, DisplayValue, Refusal};

/// Returns true if the object should exist.
pub(crate) fn present(declaration: &Declaration) -> Result<bool, Refusal> {
    Ok(declaration.word("ensure", &["present", "absent"])? != Some("absent"))
}

/// Returns the changes of an object that is created, removed, or compared if it should
/// exist and does.
pub(crate) fn changes<T>(
    should_exist: bool,
    found: Option<&T>,
    differences: impl FnOnce(&T) -> Vec<Change>,
) -> Vec<Change> {
    match (should_exist, found) {
        (false, None) => Vec::new(),
        (false, Some(_)) => vec![Change::new("ensure", json!("present"), json!("absent"))],
        (true, None) => vec![Change::new(
            "ensure",
            DisplayValue::Absent,
            json!("present"),
        )],
        (true, Some(found)) => differences(found),
    }
}

/// Returns a change for each property that differs: its name, the old and the new value.
pub(crate) fn differing<const N: usize>(
    properties: [(&'static str, Value, Value); N],
) -> Vec<Change> {
    properties
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(property, old, new)| Change::new(property, old, new))
        .collect()
}
