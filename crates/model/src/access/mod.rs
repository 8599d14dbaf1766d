//! Access rules: who may do what, on what.
//!
//! A rule joins a [`Subject`], an [`AccessGrant`] and an [`AccessScope`]. Nothing is allowed
//! without a rule, and no rule forbids anything: the order of rules does not matter.
//!
//! Absent: where rules are stored, and which nodes a query finds. A caller of
//! [`AccessScope::covers`] says that through [`ScopeWorld`].

mod decision;
mod grant;
mod rules;
mod scope;
mod subject;
mod verb;

pub use decision::{AccessHolder, AccessTarget, InvalidTarget, ScopeWorld};
pub use grant::{AccessGrant, AccessRole, InvalidGrant};
pub use rules::{AccessRule, AccessRules, MOST_RULES, RuleId, RulesError};
pub use scope::{AccessScope, InvalidScope};
pub use subject::{GroupName, InvalidSubject, MOST_GROUPS, Subject};
pub use verb::{AccessVerb, InvalidVerb};

/// The group whose members the signer accepts as administrators: they may request certificates
/// for others.
pub const ADMINISTRATORS: &str = "administrators";
