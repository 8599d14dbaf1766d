//! One resource of a catalog.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Place, Requisite, ResourceReference, is_sensitive};

/// A declared resource, with its parameters as the compiler wrote them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Resource {
    #[serde(rename = "type")]
    pub type_name: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Exported resources are for other nodes, so the engine ignores them.
    #[serde(default)]
    pub exported: bool,
    /// Puppet's name for the kind of type: `class`, `defined_type`, `compilable_type`, `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// The names of the parameters whose values are secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensitive_parameters: Vec<String>,
    /// Salt's requisites, resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requisites: Vec<Requisite>,
    /// The origin of a state. A resource without it follows Puppet's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<StateOrigin>>,
    /// Members that this build does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The names by which Salt users know a state. A resource that has them follows Salt's rules where
/// they differ from Puppet's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StateOrigin {
    /// The id in the state file.
    pub id: String,
    /// The name that the state acts on (`name:`, or the id).
    pub name: String,
    /// The function, such as `file.managed`.
    pub function: String,
    /// The `sls` name of the state file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sls: Option<String>,
    /// Salt's `order`, resolved by the front end. Smaller numbers come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<i64>,
}

impl Resource {
    pub fn reference(&self) -> ResourceReference {
        ResourceReference::new(&self.type_name, self.title.clone())
    }

    pub fn place(&self) -> Place {
        Place {
            file: self.file.clone(),
            line: self.line,
        }
    }

    /// Returns whether a parameter must never be shown: it is marked by name, or has a rich
    /// `Sensitive` value anywhere inside.
    pub fn is_sensitive(&self, parameter: &str) -> bool {
        self.sensitive_parameters
            .iter()
            .any(|name| name == parameter)
            || self.parameters.get(parameter).is_some_and(is_sensitive)
    }
}
