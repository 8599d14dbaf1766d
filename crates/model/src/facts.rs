//! The facts of a node, and the id that shows whether a relevant fact changed.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{FactSetId, content_id_of_json};

/// The facts of one node at one moment: a JSON object with Facter's names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FactSet(Map<String, Value>);

/// The error for facts that are not an object.
#[derive(Debug, thiserror::Error)]
#[error("facts must be a JSON object, not {0}")]
pub struct FactSetError(&'static str);

/// Facts that change all the time and affect no decision, as dotted paths.
///
/// `*` stands for any single key: `mountpoints.*.available_bytes`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolatileFacts(Vec<String>);

impl Default for VolatileFacts {
    fn default() -> Self {
        let paths = [
            "load_averages",
            "memory.*.available",
            "memory.*.available_bytes",
            "memory.*.capacity",
            "memory.*.used",
            "memory.*.used_bytes",
            "mountpoints.*.available",
            "mountpoints.*.available_bytes",
            "mountpoints.*.capacity",
            "mountpoints.*.used",
            "mountpoints.*.used_bytes",
            "system_uptime",
        ];
        Self(paths.into_iter().map(str::to_owned).collect())
    }
}

impl VolatileFacts {
    /// Creates a list from dotted paths.
    pub fn new(paths: impl IntoIterator<Item = String>) -> Self {
        Self(paths.into_iter().collect())
    }
}

impl FactSet {
    pub fn new(facts: Map<String, Value>) -> Self {
        Self(facts)
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Returns the fact at a dotted path: `os.family`, `processors.models.0`.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut steps = path.split('.');
        let first = self.0.get(steps.next()?)?;
        steps.try_fold(first, |value, step| match value {
            Value::Object(members) => members.get(step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Returns the id. It stays equal while only volatile facts change.
    pub fn id(&self, volatile: &VolatileFacts) -> FactSetId {
        let mut steady = Value::Object(self.0.clone());
        for path in &volatile.0 {
            let steps: Vec<&str> = path.split('.').collect();
            remove(&mut steady, &steps);
        }
        FactSetId(content_id_of_json(&steady))
    }
}

impl TryFrom<Value> for FactSet {
    type Error = FactSetError;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::Object(facts) => Ok(Self(facts)),
            Value::Null => Err(FactSetError("null")),
            Value::Bool(_) => Err(FactSetError("a boolean")),
            Value::Number(_) => Err(FactSetError("a number")),
            Value::String(_) => Err(FactSetError("a string")),
            Value::Array(_) => Err(FactSetError("an array")),
        }
    }
}

fn remove(value: &mut Value, steps: &[&str]) {
    let (Value::Object(members), Some((step, rest))) = (value, steps.split_first()) else {
        return;
    };
    if rest.is_empty() {
        if *step == "*" {
            members.clear();
        } else {
            members.remove(*step);
        }
    } else if *step == "*" {
        for member in members.values_mut() {
            remove(member, rest);
        }
    } else if let Some(member) = members.get_mut(*step) {
        remove(member, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(value: Value) -> FactSet {
        value.try_into().expect("an object")
    }

    fn id(value: Value) -> FactSetId {
        facts(value).id(&VolatileFacts::default())
    }

    #[test]
    fn volatile_facts_do_not_change_the_id() {
        assert_eq!(
            id(
                json!({"os": "x", "system_uptime": {"seconds": 1}, "memory": {"system": {"total_bytes": 9, "used_bytes": 1}}})
            ),
            id(
                json!({"os": "x", "system_uptime": {"seconds": 2}, "memory": {"system": {"total_bytes": 9, "used_bytes": 2}}})
            ),
        );
    }

    #[test]
    fn any_other_fact_does() {
        assert_ne!(id(json!({"os": "x"})), id(json!({"os": "y"})));
        assert_ne!(
            id(json!({"memory": {"system": {"total_bytes": 9}}})),
            id(json!({"memory": {"system": {"total_bytes": 8}}})),
        );
        assert_ne!(id(json!({"os": "x"})), id(json!({"os": "x", "role": "db"})));
    }

    #[test]
    fn a_dotted_path_reaches_into_objects_and_lists() {
        let facts =
            facts(json!({"os": {"family": "Debian"}, "processors": {"models": ["a", "b"]}}));
        assert_eq!(facts.get("os.family"), Some(&json!("Debian")));
        assert_eq!(facts.get("processors.models.1"), Some(&json!("b")));
        assert_eq!(facts.get("os.name"), None);
        assert_eq!(facts.get(""), None);
    }
}
