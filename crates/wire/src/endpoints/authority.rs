//! The CA, and its replacement by another one.

use super::definition::endpoints;
use super::{Json, NoContent};
use crate::api::{AuthorityView, FinishRotationRequest, RotateRequest, RotationStatus};

endpoints! {
    tag "certificates";

    /// Return the trusted CAs, and whether the caller should renew its certificate.
    ShowAuthority: Get "/v1/authority" {
        access: AnyRole,
        reply: Json<AuthorityView>,
    }

    /// Show the running or last replacement of the CA.
    ShowRotation: Get "/v1/authority/rotation" {
        access: Operator,
        needs: View on Everything,
        reply: Json<RotationStatus>,
    }

    /// Start to replace the CA.
    StartRotation: Post "/v1/authority/rotation" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<RotateRequest>,
        reply: Json<RotationStatus>,
        details: ["period_seconds"],
    }

    /// Stop trusting the former CA.
    FinishRotation: Post "/v1/authority/rotation/finish" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<FinishRotationRequest>,
        reply: Json<RotationStatus>,
        details: ["force"],
    }

    /// Go back to the former CA.
    AbortRotation: Delete "/v1/authority/rotation" {
        access: Operator,
        needs: Administer on Everything,
        reply: NoContent,
    }
}
