//! Acquiring a lock: at once, or in line behind earlier callers.
//!
//! While a caller waits, its request keeps its lease alive; a caller that
//! disconnects leaves the line when its lease ends. Waiting uses one watch: a
//! release makes the next in line the holder directly, and the end of a dead
//! holder's lease wakes the line, where only the first has something to write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_model::LockName;
use bunraku_store::{LeaseId, StoreError, Swap, WatchStart, WatchStream, compare_and_swap};
use bunraku_wire::api::locks::{AcquireLock, Holder, LockReply};
use futures::StreamExt;
use tokio::time::Instant;

use super::line::{LinePlace, LockLine};
use super::{LONGEST_LINE, LockSnapshot, Locks, lease_of, permitted, session_key};
use crate::permission::CueCaller;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The most sessions that one caller may have in the line of one lock.
const SESSIONS_PER_LOCK: usize = 100;
/// The most sessions of one caller in all locks. With more, it creates no further locks.
const SESSIONS_PER_OWNER: usize = 1_000;
/// The time after which a caller that is over budget may try again.
const RETRY: Duration = Duration::from_secs(10);

/// The result of one check of the line.
enum LineCheck {
    Reply(LockReply),
    /// In line: wait for a change.
    Wait(LockReply),
}

/// One caller's request.
struct Caller<'a> {
    name: &'a LockName,
    who: CueCaller<'a>,
    wish: Holder,
    request: &'a AcquireLock,
    lease: LeaseId,
    /// Set when the session was seen without the lock. If it holds the lock afterwards, this
    /// request got it, no matter who wrote that: the caller, or the holder before.
    was_without: AtomicBool,
}

impl Locks {
    /// Acquires a lock, or waits in line for as long as the request says.
    pub async fn acquire(
        &self,
        name: &LockName,
        who: CueCaller<'_>,
        request: &AcquireLock,
        most: Duration,
    ) -> Result<LockReply, ServiceError> {
        check_session(&request.session)?;
        let ttl = lease_of(request.lease_seconds)?;
        // Before anything is written for a caller that gets nothing.
        let read = self.read(name).await?;
        self.check_holder(name, who, &read, request.slots).await?;
        let wish = Holder {
            owner: who.name.to_string(),
            session: request.session.clone(),
            reason: request.reason.clone(),
            since: self.clock.now(),
            token: 0,
        };
        let lease = match self.lease(name, &wish).await? {
            Some(lease) if self.keep_alive(lease).await? => lease,
            _ => self.store.lease_grant(ttl).await?,
        };
        let caller = Caller {
            name,
            who,
            wish,
            request,
            lease,
            was_without: AtomicBool::new(false),
        };
        let reply = self.wait_in_line(&caller, ttl, most).await;
        if !matches!(
            reply,
            Ok(LockReply::Held { .. } | LockReply::Waiting { .. })
        ) {
            self.revoke_lease(lease).await;
        }
        Ok(permitted::reply_for(who, reply?))
    }

    async fn wait_in_line(
        &self,
        caller: &Caller<'_>,
        ttl: Duration,
        most: Duration,
    ) -> Result<LockReply, ServiceError> {
        let deadline = Instant::now() + most;
        let mut alive = tokio::time::interval(ttl / 3);
        loop {
            // The watch is open before the check, so a change in between wakes it.
            let prefix = keys::lock_prefix(caller.name);
            let mut changes = self.store.watch(&prefix, WatchStart::Now).await?;
            loop {
                match self.check_line(caller).await? {
                    LineCheck::Reply(reply) => return Ok(reply),
                    LineCheck::Wait(reply) if Instant::now() >= deadline => return Ok(reply),
                    LineCheck::Wait(_) => {}
                }
                let woken = tokio::select! {
                    woken = next_change(&mut changes) => woken?,
                    () = tokio::time::sleep_until(deadline) => true,
                    _ = alive.tick() => {
                        if !self.keep_alive(caller.lease).await? {
                            return Err(out_of_line(caller.name));
                        }
                        true
                    }
                };
                if !woken {
                    break;
                }
            }
        }
    }

    async fn check_line(&self, caller: &Caller<'_>) -> Result<LineCheck, ServiceError> {
        compare_and_swap(&*self.store, |_| self.decide(caller)).await
    }

    async fn decide(&self, caller: &Caller<'_>) -> Result<Swap<LineCheck>, ServiceError> {
        let read = self.read(caller.name).await?;
        let slots = caller.request.slots;
        self.check_holder(caller.name, caller.who, &read, slots)
            .await?;
        let before = read.line.place(&caller.wish.owner, &caller.wish.session);
        let own_key = session_key(caller.name, &caller.wish);
        let lives = read.sessions.contains(&own_key);
        if let (LinePlace::Holds { token }, true) = (before, lives) {
            return Ok(Swap::Done(LineCheck::Reply(LockReply::Held {
                token,
                taken: caller.was_without.load(Ordering::Relaxed),
            })));
        }
        caller.was_without.store(true, Ordering::Relaxed);
        let mut line = read.line.clone();
        adopt_slots(&mut line, caller)?;
        if !lives {
            // Leave the line and join it again at its end: a dead session keeps no place.
            let same = |holder: &Holder| {
                holder.owner == caller.wish.owner && holder.session == caller.wish.session
            };
            line.holders.retain(|holder| !same(holder));
            line.waiters.retain(|holder| !same(holder));
        }
        let joins = line.place(&caller.wish.owner, &caller.wish.session) == LinePlace::Nowhere;
        if joins {
            self.check_budget(caller, &read).await?;
            line.join(caller.wish.clone());
        }
        self.settle(caller, &read, line, joins)
    }

    /// Refuses a caller that has too many sessions, or would create too many locks. What counts is
    /// what the store contains.
    async fn check_budget(
        &self,
        caller: &Caller<'_>,
        read: &LockSnapshot,
    ) -> Result<(), ServiceError> {
        let owner = &caller.wish.owner;
        let refused = |message| ServiceError::OverBudget {
            message,
            retry_after: RETRY,
        };
        let of_owner = format!("/sessions/{owner}/");
        let here = read.sessions.iter().filter(|key| key.contains(&of_owner));
        if here.count() >= SESSIONS_PER_LOCK {
            let message =
                format!("`{owner}` already has {SESSIONS_PER_LOCK} sessions for this lock");
            return Err(refused(message));
        }
        if read.entry.is_none() {
            let keys = document::keys_under(&*self.store, keys::LOCKS).await?;
            let sessions = keys.iter().filter(|key| key.contains(&of_owner)).count();
            if sessions >= SESSIONS_PER_OWNER {
                let message =
                    format!("`{owner}` already holds or awaits {SESSIONS_PER_OWNER} locks");
                return Err(refused(message));
            }
        }
        Ok(())
    }

    /// Writes only this caller's own changes: joining the line, or moving up.
    fn settle(
        &self,
        caller: &Caller<'_>,
        read: &LockSnapshot,
        mut line: LockLine,
        joins: bool,
    ) -> Result<Swap<LineCheck>, ServiceError> {
        let own_key = session_key(caller.name, &caller.wish);
        let mut settled = line.settle(
            |holder| {
                let key = session_key(caller.name, holder);
                key == own_key || read.sessions.contains(&key)
            },
            self.clock.now(),
        );
        settled
            .promoted
            .retain(|holder| !joins || session_key(caller.name, holder) != own_key);
        let place = line.place(&caller.wish.owner, &caller.wish.session);
        let reply = match place {
            LinePlace::Holds { token } => LockReply::Held { token, taken: true },
            LinePlace::Waits { ahead } => LockReply::Waiting {
                ahead,
                holders: line.holders.clone(),
            },
            LinePlace::Nowhere => return Err(out_of_line(caller.name)),
        };
        let waits = matches!(reply, LockReply::Waiting { .. });
        if waits && joins && caller.request.only_now {
            return Ok(Swap::Done(LineCheck::Reply(LockReply::Taken {
                holders: line.holders,
            })));
        }
        if waits && joins && line.waiters.len() > LONGEST_LINE {
            let message = format!("{LONGEST_LINE} are already waiting for `{}`", caller.name);
            return Err(ServiceError::Busy { message });
        }
        if waits && !joins {
            return Ok(Swap::Done(LineCheck::Wait(reply)));
        }
        let mut transaction = self.transaction(caller.name, read, &line, &settled);
        if joins {
            let session = document::encode(&serde_json::json!({}));
            transaction = transaction.put_with_lease(own_key, session, caller.lease);
        }
        let look = if waits {
            LineCheck::Wait(reply)
        } else {
            LineCheck::Reply(reply)
        };
        Ok(Swap::Write(transaction, look))
    }
}

fn out_of_line(name: &LockName) -> ServiceError {
    ServiceError::conflict(
        format!("no longer in the queue for `{name}`: the lease expired"),
        "request the lock again",
    )
}

/// Waits for a change. Returns false if the watch ended and must be reopened.
async fn next_change(changes: &mut WatchStream) -> Result<bool, ServiceError> {
    match changes.next().await {
        Some(Ok(_)) => Ok(true),
        None | Some(Err(StoreError::Compacted { .. })) => Ok(false),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Sets the number of slots of a lock that nobody defined: its first caller chooses it.
fn adopt_slots(line: &mut LockLine, caller: &Caller<'_>) -> Result<(), ServiceError> {
    let Some(slots) = caller.request.slots.filter(|slots| *slots != line.slots) else {
        return Ok(());
    };
    if slots == 0 {
        return Err(ServiceError::invalid("a lock needs at least one slot"));
    }
    let is_theirs = line.defined || !line.holders.is_empty() || !line.waiters.is_empty();
    if is_theirs || !caller.who.is_operator() {
        return Err(ServiceError::conflict(
            format!("`{}` has {} slots, not {slots}", caller.name, line.slots),
            "omit `--slots`, or ask an operator to define the lock",
        ));
    }
    line.slots = slots;
    Ok(())
}

/// Checks a session, which becomes part of a key.
fn check_session(session: &str) -> Result<(), ServiceError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !session.is_empty() && session.len() <= 100 && session.bytes().all(allowed) {
        Ok(())
    } else {
        Err(ServiceError::invalid(
            "a session must be 1 to 100 characters from A-Z, a-z, 0-9, `.`, `-` and `_`",
        ))
    }
}
