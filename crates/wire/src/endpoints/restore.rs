//! The review after data was restored from a backup.

use super::definition::endpoints;
use super::{Json, NoContent};
use crate::api::{OfferedLists, RestoreReview};

endpoints! {
    tag "certificates";

    /// Show what may be missing after a restore.
    ShowRestore: Get "/v1/restore" {
        access: Operator,
        needs: View on Everything,
        reply: Json<RestoreReview>,
    }

    /// Declare that the data was restored from a backup.
    DeclareRestore: Post "/v1/restore" {
        access: Operator,
        needs: Administer on Everything,
        reply: NoContent,
    }

    /// End the review: trust the operators in the inventory again.
    AcceptRestore: Post "/v1/restore/accept" {
        access: Operator,
        needs: Administer on Everything,
        reply: NoContent,
    }

    /// Offer revocation lists that the server may have forgotten.
    ///
    /// Only lists that the CA signed count.
    OfferRevocationLists: Post "/v1/crl" {
        access: AnyRole,
        body: Json<OfferedLists>,
        reply: NoContent,
        audited: Routine,
    }
}
