//! The catalog: all resources of one node with their edges.
//!
//! The JSON form is Puppet's (`catalog_format` 2, including rich data), extended and not forked.
//! Data that Puppet does not know is in members that it ignores (`requisites`, `state`, `register`,
//! `ordering`, …). Data that this build does not know is kept in `other`, so that reading and writing loses
//! nothing.
//!
//! Absent on purpose: the meaning of resource types, and the graph. Both belong to the engine.

mod diff;
mod id;
mod read;
mod reference;
mod requisite;
mod resource;
mod rich_data;
mod source;

pub use diff::{
    CatalogDiff, Difference, DisplayValue, ListDiff, ResourceChange, ResourceDiff, SourceDiff,
};
pub use id::CatalogId;
pub use read::{CatalogReadError, Place};
pub use reference::{InvalidReference, ResourceReference};
pub use requisite::{Group, Requisite, RequisiteKind};
pub use resource::{Resource, StateOrigin};
pub use rich_data::{RichData, is_sensitive, plain};
pub use source::{CatalogSource, PLUGINS_ADDRESS, SourceEntry, SourceFile};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::OrderingMode;

/// One immutable graph of resources for one node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// The node that the catalog was compiled for.
    #[serde(default)]
    pub name: String,
    /// The compiler's name for this version. It is often a time, so it is not part of the id.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::present"
    )]
    pub version: Option<Value>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::present"
    )]
    pub code_id: Option<Value>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::present"
    )]
    pub catalog_uuid: Option<Value>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::present"
    )]
    pub catalog_format: Option<Value>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read::present"
    )]
    pub environment: Option<Value>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// Containment: the source holds the target.
    #[serde(default)]
    pub edges: Vec<ContainmentEdge>,
    #[serde(default)]
    pub classes: Vec<String>,
    /// Resources that the node's code exports for other nodes. The node itself does not apply them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<Resource>,
    /// The files that resources refer to, by address (`salt://…`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, CatalogSource>,
    /// The order that the environment asks for. Without it, the engine decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering: Option<OrderingMode>,
    /// Members that this build does not know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A containment edge: `source` contains `target`. Both have the form `Type[title]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainmentEdge {
    pub source: String,
    pub target: String,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[cfg(test)]
mod tests;
