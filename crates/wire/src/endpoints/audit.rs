//! The audit log: listed, followed, exported.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::definition::endpoints;
use super::{Json, JsonLines};
use crate::api::{AuditHead, AuditOutcome, AuditPage, AuditRecord};

/// Which records to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only records of this caller. `*` matches any text.
    pub who: Option<String>,
    /// Only this action, such as `create-release`. `*` matches any text.
    pub action: Option<String>,
    /// Only this object, such as `environment/production`. `*` matches any text.
    pub object: Option<String>,
    /// Only this outcome.
    #[param(inline)]
    pub outcome: Option<AuditOutcome>,
    /// Only the request with this id.
    pub request_id: Option<String>,
    /// Only records from this time on.
    #[param(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Only records before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Records per page, at most 1000. Default: 50.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub before: Option<u64>,
}

/// Where to start in the log.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditLinesQuery {
    /// Only records after this number. Default for an export: all. Default for a stream: only new
    /// ones.
    pub after: Option<u64>,
}

endpoints! {
    tag "audit";

    /// List audit records, newest first.
    ListAudit: Get "/v1/audit" {
        access: Operator,
        needs: View on Everything,
        query: AuditQuery,
        reply: Json<AuditPage>,
    }

    /// Show the number and the hash of the newest audit record.
    ShowAuditHead: Get "/v1/audit/head" {
        access: Operator,
        needs: View on Everything,
        reply: Json<AuditHead>,
    }

    /// Return all audit records up to now, one line each, oldest first.
    ///
    /// The lines are exactly those that the hashes cover.
    ExportAudit: Get "/v1/audit/records" {
        access: Operator,
        needs: View on Everything,
        query: AuditLinesQuery,
        reply: JsonLines<AuditRecord>,
    }

    /// Follow the audit log: each new record, when it is written.
    FollowAudit: Get "/v1/audit/stream" {
        access: Operator,
        needs: View on Everything,
        query: AuditLinesQuery,
        reply: JsonLines<AuditRecord>,
    }
}
