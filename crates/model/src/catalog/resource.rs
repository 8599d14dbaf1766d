//! One resource of a catalog.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Place, Requisite, ResourceReference, is_sensitive};

/// A declared thing, with its parameters as the compiler wrote them.
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
    /// Exported resources are for other nodes: the engine passes them by.
    #[serde(default)]
    pub exported: bool,
    /// Puppet's word for what made the type: `class`, `defined_type`, `compilable_type`, `unknown`.
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
    /// Where a state came from; a resource without it follows Puppet's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<StateOrigin>>,
    /// Members that this build does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What Salt users know a state by. A resource that has it follows Salt's
/// rules where they differ from Puppet's.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StateOrigin {
    /// The id in the state file.
    pub id: String,
    /// The name it acts on (`name:`, or the id).
    pub name: String,
    /// `file.managed`.
    pub function: String,
    /// The state file as `sls` name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sls: Option<String>,
    /// Salt's `order` as resolved by the front end: smaller first.
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

    /// Whether a parameter must never be shown: marked by name, or by a rich
    /// `Sensitive` value anywhere inside.
    pub fn is_sensitive(&self, parameter: &str) -> bool {
        self.sensitive_parameters
            .iter()
            .any(|name| name == parameter)
            || self.parameters.get(parameter).is_some_and(is_sensitive)
    }
}
