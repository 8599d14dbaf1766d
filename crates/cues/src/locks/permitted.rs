//! Which nodes may hold a lock, and what a node sees of the locks of others.

use bunraku_control::ServiceError;
use bunraku_model::LockName;
use bunraku_store::compare_and_swap;
use bunraku_wire::api::locks::{Holder, LockReply, LockStatus, PermitLock};

use super::{LockSnapshot, Locks, session_key, status};
use crate::permission::{self, CueCaller, quoted};

impl Locks {
    /// Lets nodes hold or see a lock, and keeps the rest of its definition.
    pub async fn permit(&self, name: &LockName, request: &PermitLock) -> Result<(), ServiceError> {
        if request.slots == Some(0) {
            return Err(ServiceError::invalid("a lock needs at least one slot"));
        }
        self.permissions.check(&request.may_hold)?;
        self.permissions.check(&request.may_see)?;
        compare_and_swap(&*self.store, |_| async {
            let read = self.read(name).await?;
            let mut line = read.line.clone();
            match request.slots {
                Some(slots) if line.defined && slots != line.slots => {
                    return Err(ServiceError::conflict(
                        format!("`{name}` is defined with {} slots, not {slots}", line.slots),
                        "omit `--slots`, or change it with `bunraku lock define`",
                    ));
                }
                Some(slots) => (line.slots, line.defined) = (slots, true),
                None => {}
            }
            let may_hold = line.may_hold.get_or_insert_default();
            permission::extend(may_hold, &request.may_hold, request.replace);
            self.permissions.check(may_hold)?;
            permission::extend(&mut line.may_see, &request.may_see, request.replace);
            self.permissions.check(&line.may_see)?;
            Ok(self.write_settled(name, &read, &mut line))
        })
        .await
    }

    /// Refuses callers that may not hold this lock. The refusal is the same for a lock that does
    /// not exist.
    pub(super) async fn check_holder(
        &self,
        name: &LockName,
        caller: CueCaller<'_>,
        read: &LockSnapshot,
        slots: Option<u32>,
    ) -> Result<(), ServiceError> {
        if caller.is_operator() {
            return Ok(());
        }
        let permitted = match &read.line.may_hold {
            Some(list) => self.permissions.contain(list, caller).await?,
            // From before there were permissions: who holds it keeps it.
            None => holds(name, read, caller),
        };
        if permitted {
            return Ok(());
        }
        let mut command = format!(
            "bunraku lock permit {} --may-hold {}",
            quoted(name.as_str()),
            caller.name
        );
        if let Some(slots) = slots {
            command.push_str(&format!(" --slots {slots}"));
        }
        let what = format!("hold the lock `{name}`");
        Err(permission::refusal(caller, &what, &command))
    }

    /// Returns a lock as far as this caller may see it.
    pub(super) async fn seen_by(
        &self,
        name: &LockName,
        read: &LockSnapshot,
        caller: CueCaller<'_>,
    ) -> Result<Option<LockStatus>, ServiceError> {
        let mut status = status(name, read);
        if caller.is_operator() {
            return Ok(Some(status));
        }
        let may_hold = read.line.may_hold.as_deref().unwrap_or_default();
        let visible = holds(name, read, caller)
            || self.permissions.contain(may_hold, caller).await?
            || self.permissions.contain(&read.line.may_see, caller).await?;
        if !visible {
            return Ok(None);
        }
        status.holders = names_only(caller, status.holders);
        status
            .waiters
            .retain(|waiter| waiter.owner == caller.name.as_str());
        status.on_change = None;
        status.may_hold.clear();
        status.may_see.clear();
        Ok(Some(status))
    }
}

/// Returns whether this caller holds the lock now.
fn holds(name: &LockName, read: &LockSnapshot, caller: CueCaller<'_>) -> bool {
    read.line.holders.iter().any(|holder| {
        holder.owner == caller.name.as_str() && read.sessions.contains(&session_key(name, holder))
    })
}

/// Holders without what they say about themselves, except the caller.
fn names_only(caller: CueCaller<'_>, holders: Vec<Holder>) -> Vec<Holder> {
    let shown = holders.into_iter().map(|mut holder| {
        if holder.owner != caller.name.as_str() {
            holder.reason = None;
            holder.session.clear();
        }
        holder
    });
    shown.collect()
}

/// The reply as this caller may see it.
pub(super) fn reply_for(caller: CueCaller<'_>, reply: LockReply) -> LockReply {
    if caller.is_operator() {
        return reply;
    }
    match reply {
        LockReply::Waiting { ahead, holders } => LockReply::Waiting {
            ahead,
            holders: names_only(caller, holders),
        },
        LockReply::Taken { holders } => LockReply::Taken {
            holders: names_only(caller, holders),
        },
        held @ LockReply::Held { .. } => held,
    }
}
