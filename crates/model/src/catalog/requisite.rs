//! Edges beyond Puppet's metaparameters: Salt's requisites, resolved.
//!
//! A front end turns names, wildcards, `sls:` targets and every `_in` form into plain references
//! before it writes these. Puppet's `require`, `before`, `notify` and `subscribe` stay
//! metaparameters, as in Puppet.

use serde::{Deserialize, Serialize};

use super::ResourceReference;

/// A condition on other resources for running a resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Requisite {
    pub kind: RequisiteKind,
    /// The rule for several targets: all must match, or one is enough.
    #[serde(default, skip_serializing_if = "Group::is_usual")]
    pub group: Group,
    pub targets: Vec<ResourceReference>,
}

/// Salt's kinds of requisites; the first two are also Puppet's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequisiteKind {
    /// Runs after the targets, if they did not fail.
    Require,
    /// Like `Require`, and is refreshed when a target changed.
    Watch,
    /// Runs before the targets, if they would change.
    Prereq,
    /// Runs after the targets, if they changed.
    OnChanges,
    /// Runs after the targets, if they failed.
    OnFail,
    /// Is refreshed once at the very end when a target changed; implies no order.
    Listen,
}

/// Salt's `require` and `require_any`, `onfail` and `onfail_all`.
///
/// `Usual` is the meaning of the bare word for its kind: all targets for `require` and `watch`, any
/// target for `onchanges`, `onfail` and `prereq`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    #[default]
    Usual,
    Any,
    All,
}

impl Group {
    fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

impl RequisiteKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Require => "require",
            Self::Watch => "watch",
            Self::Prereq => "prereq",
            Self::OnChanges => "onchanges",
            Self::OnFail => "onfail",
            Self::Listen => "listen",
        }
    }
}
