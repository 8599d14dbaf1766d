//! The compile queue.

use super::definition::endpoints;
use super::{Json, List, Paged};
use crate::api::{
    CompileRequested, CompileSelection, CompileStatus, CompileStatusRequest, QueuedCompile,
};

endpoints! {
    tag "compiles";

    /// Add nodes to the compile queue.
    RequestCompiles: Post "/v1/compiles" {
        access: Operator,
        needs: Deploy on Each,
        body: Json<CompileSelection>,
        reply: Json<CompileRequested>,
    }

    /// List the compile queue in order.
    ListCompileQueue: Get "/v1/compiles/queue" {
        access: Operator,
        needs: View on Each,
        reply: Paged<QueuedCompile>,
    }

    /// Show how compiling nodes went; can wait until none of them is queued.
    ShowCompiles: Post "/v1/compiles/status" {
        access: Operator,
        needs: View on Each,
        body: Json<CompileStatusRequest>,
        reply: List<CompileStatus>,
        old_data: Allowed,
        audited: No,
    }
}
