//! Access rules, and the explanation of a decision.

use std::collections::BTreeSet;

use bunraku_model::NodeName;
use bunraku_model::access::{
    AccessGrant, AccessRule, AccessScope, AccessTarget, AccessVerb, GroupName, RuleId, Subject,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One access rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessRuleEntry {
    pub id: RuleId,
    /// A certificate's name, `group:NAME`, `@everyone` or `@ungrouped`.
    #[schema(value_type = String)]
    pub subject: Subject,
    /// A role, or verbs with commas between them.
    #[schema(value_type = String)]
    pub grants: AccessGrant,
    /// `everything`, `environment:NAME` or `nodes:QUERY`.
    #[schema(value_type = String)]
    pub scope: AccessScope,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the rule allows nothing, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl AccessRuleEntry {
    /// The entry of a rule without a problem.
    pub fn new(rule: AccessRule) -> Self {
        Self {
            id: rule.id,
            subject: rule.subject,
            grants: rule.grants,
            scope: rule.scope,
            by: rule.by,
            since: rule.since,
            reason: rule.reason,
            problem: None,
        }
    }
}

/// A request to add a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantAccessRequest {
    #[schema(value_type = String)]
    pub subject: Subject,
    #[schema(value_type = String)]
    pub grants: AccessGrant,
    #[schema(value_type = String)]
    pub scope: AccessScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The rule that was added, or that existed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantAccessReply {
    pub rule: AccessRuleEntry,
    /// `false` if the same rule existed.
    pub is_new: bool,
    /// Why the rule may have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The rule that was revoked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeAccessReply {
    pub rule: AccessRuleEntry,
    /// `true` if the caller can still change rules.
    pub may_administer: bool,
}

/// A question: may somebody do this?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckAccessRequest {
    /// A certificate's name, or `group:NAME`. The caller, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub who: Option<Subject>,
    #[schema(value_type = String)]
    pub verb: AccessVerb,
    /// `everything`, `environment:NAME` or `node:NAME`.
    #[schema(value_type = String)]
    pub target: AccessTarget,
}

/// The decision, and the rules that were considered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessDecision {
    pub is_allowed: bool,
    /// The rule that allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<AccessRuleEntry>,
    /// The groups that were considered: those of the newest valid certificate.
    #[schema(value_type = Vec<String>)]
    pub groups: BTreeSet<GroupName>,
    /// Other rules about the same subject, and why they do not allow it.
    pub others: Vec<RejectedRule>,
    /// What to know about the answer, such as a certificate that does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The environment of the node in question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

/// A rule that does not allow what was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RejectedRule {
    pub rule: AccessRuleEntry,
    pub why: String,
}

/// What the caller may do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OwnAccess {
    #[schema(value_type = String)]
    pub name: NodeName,
    #[schema(value_type = Vec<String>)]
    pub groups: BTreeSet<GroupName>,
    /// The rules about the caller.
    pub rules: Vec<AccessRuleEntry>,
}
