//! The place of history.

use super::Json;
use super::definition::endpoints;
use crate::api::{HistoryStatus, MoveHistoryRequest};

endpoints! {
    tag "store";

    /// Show where history is, and the progress of a move.
    ShowHistory: Get "/v1/store/history" {
        access: Operator,
        needs: View on Everything,
        reply: Json<HistoryStatus>,
    }

    /// Move all history to another place.
    ///
    /// New reports go there from now on. The servers move the others in the background.
    MoveHistory: Post "/v1/store/history/move" {
        access: Operator,
        needs: Administer on Everything,
        body: Json<MoveHistoryRequest>,
        reply: Json<HistoryStatus>,
    }
}
