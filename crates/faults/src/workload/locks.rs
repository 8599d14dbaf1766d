//! Locks: acquired immediately or not at all, held for a moment, then released or
//! left to their lease.

use std::time::Duration;

use bunraku_wire::api::locks::{AcquireLock, LockReply, LockToken};
use bunraku_wire::endpoints::{self, Endpoint, ReleaseLock};
use rand::RngExt;

use super::{Worker, outcome_of};
use crate::history::{Call, CallOutcome, Server};

pub(crate) const LOCKS: [&str; 2] = ["faults-a", "faults-b"];
const LEASE_SECONDS: u64 = 3;
/// Clients that want a lock together ask at multiples of this, in microseconds.
const TOGETHER: u64 = 700_000;

impl Worker {
    /// All clients want the same lock at the same moment: they compete even on a busy machine.
    pub(super) async fn contend(&mut self) {
        let now = self.recorder.now();
        let next = (now / TOGETHER + 1) * TOGETHER;
        tokio::time::sleep(Duration::from_micros(next - now)).await;
        let server = self.any_server();
        if let Some(token) = self.acquire(server, LOCKS[0]).await {
            self.release(server, LOCKS[0], token).await;
        }
    }

    pub(super) async fn hold_lock(&mut self) {
        let server = self.any_server();
        let lock = LOCKS[self.random.random_range(0..LOCKS.len())];
        let Some(token) = self.acquire(server, lock).await else {
            return;
        };
        let held = Duration::from_millis(self.random.random_range(20..400));
        tokio::time::sleep(held).await;
        // Some holders die: their lease releases the lock.
        if self.random.random_bool(0.9) {
            let server = self.any_server();
            self.release(server, lock, token).await;
        }
    }

    /// Returns the token, if the lock was granted.
    pub(crate) async fn acquire(&mut self, server: Server, lock: &str) -> Option<u64> {
        let session = self.unique();
        let request = AcquireLock {
            session: session.clone(),
            lease_seconds: LEASE_SECONDS,
            wait_seconds: 0,
            only_now: true,
            reason: None,
            slots: None,
        };
        let name = lock.parse().expect("a name");
        let at = endpoints::AcquireLock.at(&name);
        let sent = self.request(server);
        let reply = sent.client.call_with(at, &request);
        let (token, outcome) = match reply.await {
            Ok(LockReply::Held { token, .. }) => (Some(token), CallOutcome::Done),
            Ok(_) => (None, CallOutcome::Refused),
            Err(error) => (None, outcome_of(&error)),
        };
        let call = Call::Acquire {
            lock: lock.to_owned(),
            session,
            lease: LEASE_SECONDS * 1_000_000,
            token,
        };
        self.record_reply(sent, call, outcome);
        token
    }

    async fn release(&mut self, server: Server, lock: &str, token: u64) {
        let name = lock.parse().expect("a name");
        let request = LockToken { token };
        let sent = self.request(server);
        let reply = sent.client.call_with(ReleaseLock.at(&name), &request);
        let outcome = match reply.await {
            Ok(_) => CallOutcome::Done,
            Err(error) => outcome_of(&error),
        };
        let lock = lock.to_owned();
        self.record_reply(sent, Call::Release { lock, token }, outcome);
    }
}
