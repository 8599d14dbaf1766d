//! Merging data: maps merge into maps, everything else replaces.

use serde_json::Value;

/// Merges `over` into `base`. A map merges into a map. A list or a scalar replaces the previous
/// value, as in Salt's `smart` strategy.
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
