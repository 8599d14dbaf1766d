//! Approvals of runs and releases.

use super::definition::endpoints;
use super::{Json, Paged};
use crate::api::approvals::{Approval, DecideApproval as DecideApprovalRequest};

endpoints! {
    tag "approvals";

    /// List requests for approval, newest first.
    ListApprovals: Get "/v1/approvals" {
        access: Operator,
        needs: View on Each,
        reply: Paged<Approval>,
    }

    /// Show a request for approval.
    ///
    /// `id` may be the beginning or the end of an id.
    ShowApproval: Get "/v1/approvals/{id}" {
        access: Operator,
        needs: View on Each,
        path: String,
        reply: Json<Approval>,
    }

    /// Approve or reject a request of someone else.
    DecideApproval: Post "/v1/approvals/{id}" {
        access: Operator,
        needs: Approve on Each,
        path: String,
        body: Json<DecideApprovalRequest>,
        reply: Json<Approval>,
        object: ("approval", "id"),
        details: ["approve"],
    }
}
