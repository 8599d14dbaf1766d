//! Reads catalogs, and reports the place of an error in them.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Catalog;

/// The place where a resource was declared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub file: Option<String>,
    pub line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}"),
            (Some(file), None) => f.write_str(file),
            (None, Some(line)) => write!(f, "line {line}"),
            (None, None) => f.write_str("the catalog"),
        }
    }
}

/// Errors from reading a catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogReadError {
    #[error("not a catalog in JSON")]
    Json(#[source] serde_json::Error),
    #[error("not a catalog: {0}")]
    Shape(&'static str),
}

impl Catalog {
    /// Reads Puppet's JSON form. Also accepts a catalog wrapped in `{"data": …}`, as older tools
    /// write it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, CatalogReadError> {
        let catalog: Self = serde_json::from_slice(bytes).map_err(CatalogReadError::Json)?;
        if !catalog.resources.is_empty() || catalog.other.is_empty() && !catalog.name.is_empty() {
            return Ok(catalog);
        }
        match catalog.other.get("data") {
            Some(wrapped @ Value::Object(_)) => {
                serde_json::from_value(wrapped.clone()).map_err(CatalogReadError::Json)
            }
            _ if catalog.name.is_empty() => Err(CatalogReadError::Shape(
                "it has neither a `name` nor `resources`",
            )),
            _ => Ok(catalog),
        }
    }
}

/// Distinguishes an explicit `null` from a missing member.
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
