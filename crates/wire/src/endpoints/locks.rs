//! Locks with leases and fencing tokens.

use bunraku_model::LockName;

use super::definition::endpoints;
use super::{Json, NoContent, Paged};
use crate::api::locks::{
    AcquireLock as AcquireLockRequest, BreakLock as BreakLockRequest,
    DefineLock as DefineLockRequest, LeaveLine, LockReply, LockStatus, LockToken,
    PermitLock as PermitLockRequest,
};

endpoints! {
    tag "locks";

    /// List all locks with their holders.
    ///
    /// A node gets the locks that it may hold or see.
    ListLocks: Get "/v1/locks" {
        access: NodeOrOperator,
        needs: View on Everything,
        reply: Paged<LockStatus>,
    }

    /// Show a lock with its holders and waiters.
    ///
    /// A lock that a node may neither hold nor see does not exist for it.
    ShowLock: Get "/v1/locks/{lock}" {
        access: NodeOrOperator,
        needs: View on Everything,
        path: LockName,
        reply: Json<LockStatus>,
    }

    /// Define the number of slots of a lock, and the trigger that fires when holders change.
    DefineLock: Put "/v1/locks/{lock}" {
        access: Operator,
        needs: Administer on Everything,
        path: LockName,
        body: Json<DefineLockRequest>,
        reply: NoContent,
        details: ["slots", "on_change", "hosts", "may_hold", "may_see"],
    }

    /// Let nodes hold or see a lock, and keep the rest of its definition.
    PermitLock: Post "/v1/locks/{lock}/permissions" {
        access: Operator,
        needs: Administer on Everything,
        path: LockName,
        body: Json<PermitLockRequest>,
        reply: NoContent,
        details: ["may_hold", "may_see", "slots", "replace"],
    }

    /// Acquire a lock, or wait in line for it.
    ///
    /// A node may do so only if the definition of the lock permits it (`may_hold`).
    AcquireLock: Post "/v1/locks/{lock}/acquire" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: LockName,
        body: Json<AcquireLockRequest>,
        reply: Json<LockReply>,
        details: ["slots"],
    }

    /// Renew the lease of a lock.
    RenewLock: Put "/v1/locks/{lock}/lease" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: LockName,
        body: Json<LockToken>,
        reply: NoContent,
        audited: Routine,
    }

    /// Release a lock.
    ReleaseLock: Post "/v1/locks/{lock}/release" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: LockName,
        body: Json<LockToken>,
        reply: NoContent,
        details: ["token"],
    }

    /// Leave the line for a lock.
    LeaveLockLine: Post "/v1/locks/{lock}/leave" {
        access: NodeOrOperator,
        needs: Run on Everything,
        path: LockName,
        body: Json<LeaveLine>,
        reply: NoContent,
    }

    /// Take a lock away from its holder.
    BreakLock: Post "/v1/locks/{lock}/break" {
        access: Operator,
        needs: Run on Everything,
        path: LockName,
        body: Json<BreakLockRequest>,
        reply: NoContent,
        details: ["token"],
    }
}
