//! Access rules.

use std::collections::BTreeSet;

use bunraku_control::access::rule_entry;
use bunraku_control::{OperatorIdentity, ServiceError};
use bunraku_model::Role;
use bunraku_model::access::{AccessHolder, AccessScope, AccessVerb, GroupName, Subject};
use bunraku_wire::api::{
    AccessDecision, GrantAccessReply, GrantAccessRequest, OwnAccess, RevokeAccessReply,
};
use bunraku_wire::endpoints::{
    CheckAccess, GrantAccess, ListAccessRules, RevokeAccess, ShowOwnAccess,
};

use super::Services;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::permit::Permit;
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListAccessRules, list)
        .add(GrantAccess, grant)
        .add(RevokeAccess, revoke)
        .add(CheckAccess, check)
        .add(ShowOwnAccess, mine)
}

async fn list(call: Call<ListAccessRules>) -> HandlerResult<ListAccessRules> {
    let known = call.services.access.newest(true).await?;
    Ok(known.rules.rules().iter().map(rule_entry).collect())
}

async fn grant(call: Call<GrantAccess>) -> HandlerResult<GrantAccess> {
    let by = call.by()?;
    let (rule, is_new) = call.services.access.grant(&call.body, by).await?;
    call.notes.detail("rule", rule.id);
    Ok(GrantAccessReply {
        rule: rule_entry(&rule),
        is_new,
        warnings: warnings(&call.services, &call.body).await?,
    })
}

/// Returns why a new rule may have no effect.
async fn warnings(
    services: &Services,
    request: &GrantAccessRequest,
) -> Result<Vec<String>, ServiceError> {
    let mut warnings = Vec::new();
    let operators = services.certificates.valid_operators().await?;
    let is_held = |holds: &dyn Fn(&OperatorIdentity) -> bool| operators.iter().any(holds);
    match &request.subject {
        Subject::Name(name) if !is_held(&|operator| operator.name == *name) => {
            warnings.push(format!(
                "no operator has a valid certificate with the name `{name}`"
            ));
        }
        Subject::Group(group) if !is_held(&|operator| operator.groups.contains(group)) => {
            warnings.push(format!("no valid certificate carries the group `{group}`"));
        }
        _ => {}
    }
    if let AccessScope::Environment(environment) = &request.scope
        && services.environments.require(environment).await.is_err()
    {
        warnings.push(format!("the environment `{environment}` does not exist"));
    }
    Ok(warnings)
}

async fn revoke(call: Call<RevokeAccess>) -> HandlerResult<RevokeAccess> {
    let services = &call.services;
    let operators = services.certificates.valid_operators().await?;
    let allow_lockout = call.query.allow_lockout;
    let revoked = services
        .access
        .revoke(call.path, &operators, allow_lockout, call.by()?);
    let rule = revoked.await?;
    let notes = &call.notes;
    notes.detail("subject", rule.subject.to_string());
    notes.detail("grants", rule.grants.to_string());
    notes.detail("scope", rule.scope.to_string());
    let known = services.access.newest(false).await?;
    let caller = call.caller()?.operator();
    Ok(RevokeAccessReply {
        rule: rule_entry(&rule),
        may_administer: known.rules.is_administrator(&caller.holder()),
    })
}

async fn mine(call: Call<ShowOwnAccess>) -> HandlerResult<ShowOwnAccess> {
    let caller = call.caller()?;
    let operator = caller.operator();
    let rules = match caller.role {
        Role::Operator => {
            let known = call.services.access.newest(true).await?;
            let rules = known.rules.rules().iter();
            let own = rules.filter(|rule| rule.subject.covers(&operator.holder()));
            own.map(rule_entry).collect()
        }
        Role::Node | Role::Server => Vec::new(),
    };
    Ok(OwnAccess {
        name: operator.name,
        groups: operator.groups,
        rules,
    })
}

async fn check(call: Call<CheckAccess>) -> HandlerResult<CheckAccess> {
    let (caller, body) = (call.caller()?, &call.body);
    let own = caller.operator();
    let is_self = match &body.who {
        None => true,
        Some(Subject::Name(name)) => *name == own.name,
        Some(_) => false,
    };
    if caller.role != Role::Operator {
        return if is_self {
            Ok(not_an_operator(caller.role))
        } else {
            Err(ErrorReply::forbidden("only operators may ask about others"))
        };
    }
    let services = &call.services;
    let known = services.access.newest(true).await?;
    let permit = Permit::new(&services.access, known.clone(), own.clone());
    let is_root = services.certificates.is_own_operator(&caller.certificate);
    if !is_self && !is_root && !permit.is_everything(AccessVerb::View).await? {
        return Err(ErrorReply::forbidden(&format!(
            "`{}` needs `view` on everything to ask about others",
            own.name
        ))
        .with_hint("ask about yourself with `bunraku access check`".to_owned()));
    }
    let (who, mut notes) = match &body.who {
        _ if is_self => (Asked::Holder(own), Vec::new()),
        Some(subject) => asked(services, subject).await?,
        None => (Asked::Holder(own), Vec::new()),
    };
    let holder = who.holder();
    let explained = services
        .access
        .explain(&known.rules, &holder, body.verb, &body.target);
    let mut decision = explained.await?;
    // Somebody with limits learns nothing about a node outside of them.
    if is_self && !decision.is_allowed && !is_root && call_is_limited(&permit).await? {
        decision.environment = None;
        decision.notes.clear();
        for other in &mut decision.others {
            if !other.why.contains("does not grant") {
                "it is limited to something else".clone_into(&mut other.why);
            }
        }
    }
    notes.append(&mut decision.notes);
    decision.notes = notes;
    Ok(decision)
}

async fn call_is_limited(permit: &Permit) -> Result<bool, ErrorReply> {
    Ok(!permit.is_everything(AccessVerb::View).await?)
}

fn not_an_operator(role: Role) -> AccessDecision {
    AccessDecision {
        is_allowed: false,
        rule: None,
        groups: BTreeSet::new(),
        others: Vec::new(),
        notes: vec![format!(
            "access rules are about operators, and this is a {role}"
        )],
        environment: None,
    }
}

/// Whom a question is about.
enum Asked {
    Holder(OperatorIdentity),
    /// Somebody with exactly these groups.
    Groups(BTreeSet<GroupName>),
}

impl Asked {
    fn holder(&self) -> AccessHolder<'_> {
        match self {
            Self::Holder(operator) => operator.holder(),
            Self::Groups(groups) => AccessHolder { name: None, groups },
        }
    }
}

/// Returns the holder that a question is about: with a name, that of the newest valid
/// certificate.
async fn asked(
    services: &Services,
    subject: &Subject,
) -> Result<(Asked, Vec<String>), ServiceError> {
    let name = match subject {
        Subject::Name(name) => name,
        Subject::Group(group) => return Ok((Asked::Groups([group.clone()].into()), Vec::new())),
        Subject::Everyone | Subject::Ungrouped => {
            return Ok((Asked::Groups(BTreeSet::new()), Vec::new()));
        }
    };
    let mut operators = services.certificates.valid_operators().await?;
    operators.retain(|operator| operator.name == *name);
    let mut notes = Vec::new();
    let Some(newest) = operators.first().cloned() else {
        notes.push(format!(
            "`{name}` has no valid operator's certificate; this is the answer for one without groups"
        ));
        let groups = BTreeSet::new();
        let name = name.clone();
        return Ok((Asked::Holder(OperatorIdentity { name, groups }), notes));
    };
    if operators.iter().any(|other| other.groups != newest.groups) {
        notes.push(format!(
            "`{name}` has several valid certificates with different groups; this is the answer for the newest"
        ));
    }
    Ok((Asked::Holder(newest), notes))
}
