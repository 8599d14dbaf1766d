//! Locks.

use std::time::Duration;

use bunraku_wire::api::locks::LockReply;
use bunraku_wire::endpoints::{
    AcquireLock, BreakLock, DefineLock, LeaveLockLine, ListLocks, PermitLock, ReleaseLock,
    RenewLock, ShowLock,
};

use super::longest_wait;
use crate::http::endpoint::{Call, HandlerResult, Routes, cut};

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListLocks, list)
        .add(ShowLock, show)
        .add(DefineLock, define)
        .add(PermitLock, permit)
        .add(AcquireLock, acquire)
        .add(RenewLock, renew)
        .add(ReleaseLock, release)
        .add(LeaveLockLine, leave)
        .add(BreakLock, break_lock)
}

async fn list(call: Call<ListLocks>) -> HandlerResult<ListLocks> {
    let caller = call.caller()?.for_cues();
    let locks = call.services.locks.list(caller).await?;
    cut(&call.page, locks, |lock| lock.name.to_string())
}

async fn show(call: Call<ShowLock>) -> HandlerResult<ShowLock> {
    let caller = call.caller()?.for_cues();
    Ok(call.services.locks.show(&call.path, caller).await?)
}

async fn define(call: Call<DefineLock>) -> HandlerResult<DefineLock> {
    call.services.locks.define(&call.path, &call.body).await?;
    Ok(())
}

async fn permit(call: Call<PermitLock>) -> HandlerResult<PermitLock> {
    call.services.locks.permit(&call.path, &call.body).await?;
    Ok(())
}

async fn acquire(call: Call<AcquireLock>) -> HandlerResult<AcquireLock> {
    let owner = call.caller()?.for_cues();
    let most = longest_wait(call.body.wait_seconds);
    let locks = &call.services.locks;
    let reply = tokio::select! {
        reply = locks.acquire(&call.path, owner, &call.body, most) => reply?,
        () = call.services.shutdown.cancelled() => locks.acquire(&call.path, owner, &call.body, Duration::ZERO).await?,
    };
    match &reply {
        LockReply::Held { token, taken: true } => call.notes.detail("token", *token),
        // A waiting node asks again and again.
        LockReply::Held { taken: false, .. }
        | LockReply::Waiting { .. }
        | LockReply::Taken { .. } => call.notes.nothing_changed(),
    }
    Ok(reply)
}

async fn renew(call: Call<RenewLock>) -> HandlerResult<RenewLock> {
    let renewed = call
        .services
        .locks
        .renew(&call.path, call.caller()?.for_cues(), call.body.token);
    renewed.await?;
    Ok(())
}

async fn release(call: Call<ReleaseLock>) -> HandlerResult<ReleaseLock> {
    let released = call
        .services
        .locks
        .release(&call.path, call.by()?, call.body.token);
    released.await?;
    Ok(())
}

async fn leave(call: Call<LeaveLockLine>) -> HandlerResult<LeaveLockLine> {
    let left = call
        .services
        .locks
        .leave(&call.path, call.by()?, &call.body.session);
    left.await?;
    Ok(())
}

async fn break_lock(call: Call<BreakLock>) -> HandlerResult<BreakLock> {
    let locks = &call.services.locks;
    locks
        .break_lock(&call.path, call.body.token, &call.body.reason, call.by()?)
        .await?;
    Ok(())
}
