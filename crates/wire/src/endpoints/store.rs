//! The places of data.

use super::definition::endpoints;
use super::{Json, NoContent};
use crate::api::{MoveContentRequest, StoreStatus};

endpoints! {
    tag "store";

    /// Show where data is, how much, and the progress of a move.
    ShowStore: Get "/v1/store" {
        access: Operator,
        needs: View on Everything,
        reply: Json<StoreStatus>,
    }

    /// Move all content to another place.
    ///
    /// New content goes there from now on. The servers move the rest in the background.
    MoveContent: Post "/v1/store/content/move" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<MoveContentRequest>,
        reply: NoContent,
        details: ["to"],
    }
}
