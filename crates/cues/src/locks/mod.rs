//! Locks and semaphores that nodes and people share.
//!
//! A lock is one document: its holders and its waiters, in order. Each of them
//! has a session key bound to a lease. When a lease ends, the store deletes the
//! key. The watch sees that, and the first in line moves up, in a transaction
//! that requires the dead session to be absent and the live one to be present.
//!
//! Invariant: a token is handed out once, and tokens only increase.

mod line;
mod permitted;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{FiringId, LockName};
use bunraku_store::{
    Compare, KeyValue, LeaseId, SharedStore, StoreError, Swap, Transaction, compare_and_swap,
};
use bunraku_wire::api::locks::{DefineLock, Holder, LockStatus};
use uuid::Uuid;

use crate::permission::{CueCaller, Permissions};
use bunraku_control::clock::Clock;
use bunraku_control::document;
use bunraku_control::{Epoch, FindNodes, ServiceError, keys};
use line::{LineUpdate, LockLine};

/// The most waiters for one lock, because the line is one document.
const LONGEST_LINE: usize = 2_000;

/// The number of sessions in one transaction, which has room for 128 compares.
const PER_TRANSACTION: usize = 60;

/// The handle on the service.
#[derive(Clone)]
pub struct Locks {
    store: SharedStore,
    clock: Clock,
    epoch: Epoch,
    permissions: Permissions,
}

/// A lock as read from the store.
struct LockSnapshot {
    line: LockLine,
    entry: Option<KeyValue>,
    /// The keys of the sessions whose lease is alive.
    sessions: HashSet<String>,
}

impl Locks {
    pub fn new(store: SharedStore, clock: Clock) -> Self {
        Self {
            store,
            clock,
            epoch: Epoch::default(),
            permissions: Permissions::default(),
        }
    }

    /// Hands out tokens above those of earlier epochs, and lets permissions name nodes by a
    /// query.
    #[must_use]
    pub fn on_server(mut self, epoch: Epoch, find_nodes: Arc<dyn FindNodes>) -> Self {
        self.epoch = epoch;
        self.permissions = Permissions::with_queries(find_nodes);
        self
    }

    /// Renews the lease of a lock. Refused if the token is no longer the holder's.
    pub async fn renew(
        &self,
        name: &LockName,
        caller: CueCaller<'_>,
        token: u64,
    ) -> Result<(), ServiceError> {
        let read = self.read(name).await?;
        let holder = held(&read, name, caller.name.as_str(), token)?;
        self.check_holder(name, caller, &read, None).await?;
        match self.lease(name, holder).await? {
            Some(lease) if self.keep_alive(lease).await? => Ok(()),
            _ => Err(lost(name, token)),
        }
    }

    /// Releases a lock; the next in line gets it in the same transaction.
    pub async fn release(
        &self,
        name: &LockName,
        owner: &str,
        token: u64,
    ) -> Result<(), ServiceError> {
        self.remove(name, |read| {
            held(read, name, owner, token).cloned().map(Some)
        })
        .await
    }

    /// Takes a lock away from its holder, on an operator's request.
    pub async fn break_lock(
        &self,
        name: &LockName,
        token: u64,
        reason: &str,
        by: &str,
    ) -> Result<(), ServiceError> {
        if reason.trim().is_empty() {
            return Err(ServiceError::invalid("breaking a lock needs a reason"));
        }
        self.remove(name, |read| {
            let holder = read
                .line
                .holders
                .iter()
                .find(|holder| holder.token == token);
            holder
                .map(|holder| Some(holder.clone()))
                .ok_or_else(|| lost(name, token))
        })
        .await?;
        tracing::info!(lock = %name, token, by, reason, "a lock was broken");
        Ok(())
    }

    /// Gives up a place in line. Does nothing for a caller that is not in line.
    pub async fn leave(
        &self,
        name: &LockName,
        owner: &str,
        session: &str,
    ) -> Result<(), ServiceError> {
        let same = |holder: &&Holder| holder.owner == owner && holder.session == session;
        self.remove(name, |read| {
            Ok(read.line.waiters.iter().find(same).cloned())
        })
        .await
    }

    /// Removes the holder or waiter that `choose` selects.
    async fn remove(
        &self,
        name: &LockName,
        choose: impl Fn(&LockSnapshot) -> Result<Option<Holder>, ServiceError>,
    ) -> Result<(), ServiceError> {
        let choose = &choose;
        let lease = compare_and_swap(&*self.store, |_| async move {
            let mut read = self.read(name).await?;
            let Some(gone) = choose(&read)? else {
                return Ok(Swap::Done(None));
            };
            let lease = self.lease(name, &gone).await?;
            read.sessions.remove(&session_key(name, &gone));
            let mut line = read.line.clone();
            let (sessions, is_gone) = (&read.sessions, |holder: &Holder| {
                holder.owner == gone.owner && holder.session == gone.session
            });
            let mut settled = line.settle(
                |holder| !is_gone(holder) && sessions.contains(&session_key(name, holder)),
                self.clock.now(),
            );
            settled.departed.retain(|holder| !is_gone(holder));
            let transaction = self
                .transaction(name, &read, &line, &settled)
                .delete(session_key(name, &gone));
            Ok::<_, ServiceError>(Swap::Write(transaction, lease))
        });
        if let Some(lease) = lease.await? {
            self.revoke_lease(lease).await;
        }
        Ok(())
    }

    /// Sets the number of slots of a lock, and the trigger to fire when the holders change.
    pub async fn define(&self, name: &LockName, request: &DefineLock) -> Result<(), ServiceError> {
        if request.slots == 0 {
            return Err(ServiceError::invalid("a lock needs at least one slot"));
        }
        self.permissions.check(&request.may_hold)?;
        self.permissions.check(&request.may_see)?;
        compare_and_swap(&*self.store, |_| async {
            let read = self.read(name).await?;
            let mut line = LockLine {
                slots: request.slots,
                defined: true,
                on_change: request.on_change.clone(),
                hosts: request.hosts.clone(),
                may_hold: Some(request.may_hold.clone()),
                may_see: request.may_see.clone(),
                ..read.line.clone()
            };
            Ok(self.write_settled(name, &read, &mut line))
        })
        .await
    }

    /// Returns the write of a changed lock. With more slots, some waiters move up at once.
    fn write_settled(&self, name: &LockName, read: &LockSnapshot, line: &mut LockLine) -> Swap<()> {
        let is_alive = |holder: &_| read.sessions.contains(&session_key(name, holder));
        let settled = line.settle(is_alive, self.clock.now());
        Swap::Write(self.transaction(name, read, line, &settled), ())
    }

    /// Returns one lock with its live holders and waiters, as far as the caller may see them.
    pub async fn show(
        &self,
        name: &LockName,
        caller: CueCaller<'_>,
    ) -> Result<LockStatus, ServiceError> {
        let read = self.read(name).await?;
        let seen = match &read.entry {
            Some(_) => self.seen_by(name, &read, caller).await?,
            None => None,
        };
        seen.ok_or_else(|| ServiceError::NotFound {
            what: format!("lock `{name}`"),
            hint: Some("list the locks with `bunraku lock list`".to_owned()),
        })
    }

    /// Returns the live holders of a lock, each owner once and in the order in
    /// which they acquired it. A lock that was never used has none.
    pub async fn owners(&self, name: &LockName) -> Result<Vec<String>, ServiceError> {
        let read = self.read(name).await?;
        let mut owners: Vec<String> = Vec::new();
        for holder in status(name, &read).holders {
            if !owners.contains(&holder.owner) {
                owners.push(holder.owner);
            }
        }
        Ok(owners)
    }

    /// Returns all locks that the caller may see, by name.
    pub async fn list(&self, caller: CueCaller<'_>) -> Result<Vec<LockStatus>, ServiceError> {
        let mut names: Vec<LockName> = document::keys_under(&*self.store, keys::LOCKS)
            .await?
            .iter()
            .filter_map(|key| keys::parse_lock_key(key))
            .collect();
        names.dedup();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let read = self.read(&name).await?;
            if read.entry.is_some() {
                all.extend(self.seen_by(&name, &read, caller).await?);
            }
        }
        Ok(all)
    }

    async fn read(&self, name: &LockName) -> Result<LockSnapshot, ServiceError> {
        let key = keys::lock_line(name);
        let mut read = LockSnapshot {
            line: LockLine::default(),
            entry: None,
            sessions: HashSet::new(),
        };
        for entry in document::read_all(&*self.store, &keys::lock_prefix(name)).await? {
            if entry.key == key {
                read.line = document::decode(&entry)?;
                read.entry = Some(entry);
            } else {
                read.sessions.insert(entry.key);
            }
        }
        read.line.last_token = read.line.last_token.max(self.epoch.floor());
        Ok(read)
    }

    /// Writes the line if it has not changed since it was read, the departed are
    /// gone, and the promoted are still alive.
    fn transaction(
        &self,
        name: &LockName,
        read: &LockSnapshot,
        line: &LockLine,
        settled: &LineUpdate,
    ) -> Transaction {
        let mut transaction =
            Transaction::new().when_unchanged(&keys::lock_line(name), read.entry.as_ref());
        for gone in settled.departed.iter().take(PER_TRANSACTION) {
            transaction = transaction.when(Compare::Absent(session_key(name, gone)));
        }
        for next in settled.promoted.iter().take(PER_TRANSACTION) {
            transaction = transaction.when(Compare::Exists(session_key(name, next)));
        }
        // In the same transaction, so that no change of holders goes unannounced.
        let (id, now) = (FiringId(Uuid::now_v7()), self.clock.now());
        if let Some(announced) = line::announced(&read.line, line, name, id, now) {
            transaction = announced.put_in(transaction);
        }
        transaction.put(keys::lock_line(name), document::encode(line))
    }

    async fn lease(
        &self,
        name: &LockName,
        holder: &Holder,
    ) -> Result<Option<LeaseId>, ServiceError> {
        let entry = self.store.get(&session_key(name, holder)).await?;
        Ok(entry.and_then(|entry| entry.lease))
    }

    /// Renews the lease. Returns false if it has ended.
    async fn keep_alive(&self, lease: LeaseId) -> Result<bool, ServiceError> {
        match self.store.lease_keep_alive(lease).await {
            Ok(()) => Ok(true),
            Err(StoreError::LeaseNotFound(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn revoke_lease(&self, lease: LeaseId) {
        // If this fails, the lease expires on its own.
        if let Err(error) = self.store.lease_revoke(lease).await {
            tracing::debug!(error = %error, "cannot revoke a lease");
        }
    }
}

fn session_key(name: &LockName, holder: &Holder) -> String {
    keys::lock_session(name, &holder.owner, &holder.session)
}

/// Returns the holder with this token, if it is this caller and its lease is alive.
fn held<'a>(
    read: &'a LockSnapshot,
    name: &LockName,
    owner: &str,
    token: u64,
) -> Result<&'a Holder, ServiceError> {
    read.line
        .holders
        .iter()
        .find(|holder| holder.token == token && holder.owner == owner)
        .filter(|holder| read.sessions.contains(&session_key(name, holder)))
        .ok_or_else(|| lost(name, token))
}

fn lost(name: &LockName, token: u64) -> ServiceError {
    ServiceError::conflict(
        format!("token {token} does not hold `{name}`: its lease expired, or it was released"),
        format!("see who holds it with `bunraku lock show {name}`"),
    )
}

fn status(name: &LockName, read: &LockSnapshot) -> LockStatus {
    let living = |holders: &[Holder]| {
        let living = holders
            .iter()
            .filter(|holder| read.sessions.contains(&session_key(name, holder)));
        living.cloned().collect()
    };
    LockStatus {
        name: name.clone(),
        slots: read.line.slots,
        holders: living(&read.line.holders),
        waiters: living(&read.line.waiters),
        on_change: read.line.on_change.clone(),
        may_hold: read.line.may_hold.clone().unwrap_or_default(),
        may_see: read.line.may_see.clone(),
    }
}

/// Checks the duration of a lease.
fn lease_of(seconds: u64) -> Result<Duration, ServiceError> {
    let ttl = Duration::from_secs(seconds);
    if crate::once::LEASES.contains(&ttl) {
        Ok(ttl)
    } else {
        Err(ServiceError::invalid(
            "lease_seconds must be between one second and a day",
        ))
    }
}
