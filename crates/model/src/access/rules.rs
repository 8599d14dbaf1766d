//! All rules of a fleet: one document, so that each change compares all of them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::decision::AccessHolder;
use super::grant::{AccessGrant, AccessRole};
use super::scope::AccessScope;
use super::subject::Subject;
use super::verb::AccessVerb;

/// The most rules of a fleet. Groups keep the number small.
pub const MOST_RULES: usize = 1_000;

/// The number of a rule. Numbers are not used twice.
pub type RuleId = u64;

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessRule {
    pub id: RuleId,
    pub subject: Subject,
    pub grants: AccessGrant,
    pub scope: AccessScope,
    /// Who granted it.
    pub by: String,
    /// When it was granted. Absent for the rule that every fleet begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AccessRule {
    /// Returns whether its subjects may change everything, rules included.
    pub fn is_administration(&self) -> bool {
        self.scope == AccessScope::Everything && self.grants.allows(AccessVerb::Administer)
    }
}

/// The reason why rules cannot change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("there are already {MOST_RULES} access rules")]
    TooMany,
    #[error("rule {0} does not exist")]
    Missing(RuleId),
}

/// All rules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AccessRules {
    /// The id of the next rule.
    next: RuleId,
    rules: Vec<AccessRule>,
}

impl AccessRules {
    /// The rules of a fleet that had none: operators whose certificates carry no group are
    /// administrators, as all operators were before there were rules.
    pub fn first() -> Self {
        let mut rules = Self::default();
        let rule = AccessRule {
            id: 1,
            subject: Subject::Ungrouped,
            grants: AccessGrant::Role(AccessRole::Administrator),
            scope: AccessScope::Everything,
            by: "bunraku".to_owned(),
            since: None,
            reason: Some("the rule that every fleet begins with".to_owned()),
        };
        rules.next = 2;
        rules.rules.push(rule);
        rules
    }

    /// The rules, oldest first.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }

    /// The rule with this number.
    pub fn get(&self, id: RuleId) -> Option<&AccessRule> {
        self.rules.iter().find(|rule| rule.id == id)
    }

    /// Adds a rule, and returns it. Granting the same again returns the rule that exists.
    pub fn grant(&mut self, wanted: AccessRule) -> Result<(AccessRule, bool), RulesError> {
        let same = |rule: &&AccessRule| {
            (&rule.subject, &rule.grants, &rule.scope)
                == (&wanted.subject, &wanted.grants, &wanted.scope)
        };
        if let Some(same) = self.rules.iter().find(same) {
            return Ok((same.clone(), false));
        }
        if self.rules.len() >= MOST_RULES {
            return Err(RulesError::TooMany);
        }
        let id = self.next.max(1);
        self.next = id + 1;
        let rule = AccessRule { id, ..wanted };
        self.rules.push(rule.clone());
        Ok((rule, true))
    }

    /// Removes a rule, and returns it.
    pub fn revoke(&mut self, id: RuleId) -> Result<AccessRule, RulesError> {
        let position = self.rules.iter().position(|rule| rule.id == id);
        let position = position.ok_or(RulesError::Missing(id))?;
        Ok(self.rules.remove(position))
    }

    /// The scopes in which a holder may do this.
    pub fn scopes(&self, holder: &AccessHolder<'_>, verb: AccessVerb) -> Vec<AccessScope> {
        let rules = self.rules.iter().filter(|rule| rule.allows(holder, verb));
        rules.map(|rule| rule.scope.clone()).collect()
    }

    /// Returns whether the holder may change everything, rules included.
    pub fn is_administrator(&self, holder: &AccessHolder<'_>) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.is_administration() && rule.subject.covers(holder))
    }
}
