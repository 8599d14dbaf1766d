//! Access rules: who may do what, on what.

use bunraku_model::access::RuleId;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, List};
use crate::api::{
    AccessDecision, AccessRuleEntry, CheckAccessRequest, GrantAccessReply, GrantAccessRequest,
    OwnAccess, RevokeAccessReply,
};

/// How to revoke a rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RevokeAccessQuery {
    /// Revoke the rule even if nobody can change rules after that.
    #[serde(default)]
    pub allow_lockout: bool,
}

endpoints! {
    tag "access";

    /// List all access rules.
    ListAccessRules: Get "/v1/access/rules" {
        access: Operator,
        needs: View on Everything,
        reply: List<AccessRuleEntry>,
    }

    /// Add an access rule.
    ///
    /// The same rule again changes nothing.
    GrantAccess: Post "/v1/access/rules" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<GrantAccessRequest>,
        reply: Json<GrantAccessReply>,
        object: ("subject", "subject"),
        details: ["grants", "scope"],
    }

    /// Revoke an access rule.
    ///
    /// The last rule that lets somebody change rules is kept, unless the request says otherwise.
    RevokeAccess: Delete "/v1/access/rules/{rule}" {
        access: Operator,
        needs: Administer on Everything,
        path: RuleId,
        query: RevokeAccessQuery,
        reply: Json<RevokeAccessReply>,
    }

    /// Explain whether somebody may do something, and which rule decides.
    ///
    /// Everybody may ask about themselves.
    CheckAccess: Post "/v1/access/check" {
        access: AnyRole,
        body: Json<CheckAccessRequest>,
        reply: Json<AccessDecision>,
        old_data: Allowed,
        audited: No,
    }

    /// Show the rules about the caller.
    ShowOwnAccess: Get "/v1/access/mine" {
        access: AnyRole,
        reply: Json<OwnAccess>,
    }
}
