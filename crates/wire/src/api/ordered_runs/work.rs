//! The work of a node in a plan: exactly one catalog, or the node's own run method.

use bunraku_model::{CatalogId, CodeId, EnvironmentName, ReleaseNumber};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api::{RunMode, Target};

/// The work of a node in one step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum PlannedWork {
    /// The node applies this catalog, and no other.
    Catalog(PlannedCatalog),
    /// The node's own run method, which does not apply released catalogs: a command, or Puppet
    /// with its own server.
    Method {
        /// `command` or `puppet`.
        method: String,
        /// Puppet's environment, if the run names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        environment: Option<EnvironmentName>,
    },
    /// The node has no released catalog, so it cannot run.
    Nothing,
}

/// A released catalog in a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlannedCatalog {
    #[schema(value_type = String)]
    pub catalog: CatalogId,
    #[schema(value_type = String)]
    pub environment: EnvironmentName,
    /// The release that introduced the catalog for this node; 0 if it is not released yet.
    #[schema(value_type = u64)]
    pub release: ReleaseNumber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub code_id: Option<CodeId>,
    /// `noop`: the node may only report what it would change.
    pub mode: RunMode,
}

impl PlannedWork {
    /// Returns the catalog that the node applies, if it applies one.
    pub fn catalog(&self) -> Option<&PlannedCatalog> {
        match self {
            Self::Catalog(planned) => Some(planned),
            Self::Method { .. } | Self::Nothing => None,
        }
    }

    /// Returns the part that decides what happens on the node. Two releases may introduce the same
    /// catalog; that is the same work.
    pub fn essence(&self) -> Value {
        match self {
            Self::Catalog(planned) => json!({
                "catalog": planned.catalog,
                "environment": planned.environment,
                "mode": planned.mode,
            }),
            Self::Method {
                method,
                environment,
            } => json!({"method": method, "environment": environment}),
            Self::Nothing => Value::Null,
        }
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.essence() == other.essence()
    }
}

impl From<Target> for PlannedCatalog {
    fn from(target: Target) -> Self {
        Self {
            catalog: target.catalog,
            environment: target.environment,
            release: target.release,
            code_id: target.code_id,
            mode: target.mode,
        }
    }
}

impl From<PlannedCatalog> for Target {
    fn from(planned: PlannedCatalog) -> Self {
        Self {
            environment: planned.environment,
            release: planned.release,
            catalog: planned.catalog,
            code_id: planned.code_id,
            mode: planned.mode,
        }
    }
}

impl std::fmt::Display for PlannedWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // A catalog that is not released yet.
            Self::Catalog(planned) if planned.release == ReleaseNumber(0) => {
                write!(f, "held catalog {}", planned.catalog.0.short())
            }
            Self::Catalog(planned) => write!(
                f,
                "catalog {} of release {}{}",
                planned.catalog.0.short(),
                planned.release,
                match planned.mode {
                    RunMode::Enforce => "",
                    RunMode::Noop => " (noop only)",
                }
            ),
            Self::Method {
                method,
                environment: None,
            } => write!(f, "run method {method}"),
            Self::Method {
                method,
                environment: Some(environment),
            } => write!(f, "run method {method} in environment {environment}"),
            Self::Nothing => f.write_str("no released catalog"),
        }
    }
}
