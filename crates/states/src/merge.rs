//! Merging data: maps into maps, everything else replaces.

use serde_json::Value;

/// Puts `over` onto `base`. A map merges into a map; a list or a scalar takes
/// the place of what was there, as Salt's `smart` strategy has it.
pub(crate) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(known) => merge(known, value),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (base, over) => *base = over,
    }
}
