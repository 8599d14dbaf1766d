//! Coordination with other nodes through the servers, for the engine.
//!
//! The engine's threads block. Requests run on the caller's runtime, with the connection and the
//! certificate that this program already has. `bunraku apply` uses the same type. Not included:
//! etcd and MCollective, which the binary provides as a [`CueTransport`], because the agent has no
//! store.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bunraku_engine::{
    Cancellation, Coordinator, CueProvider, FireResult, Firing, FleetLocks, LockAttempt,
    LockRenewal, LockRequest, LockState, StepError,
};
use bunraku_model::{FiringId, LockName, NodeName, TriggerName};
use bunraku_wire::api::locks::{AcquireLock, LockReply, LockStatus, LockToken};
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use bunraku_wire::api::{Cause, TriggerHop};
use bunraku_wire::endpoints::{self, Endpoint, ReleaseLock, RenewLock, ShowLock};
use bunraku_wire::{Client, ClientError};
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::Handle;
use uuid::Uuid;

/// The time limit for requests: a server that does not answer must not block a run forever.
const PATIENCE: Duration = Duration::from_secs(120);

/// The token no longer holds the lock.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Delivers cues to other nodes without our servers.
#[async_trait]
pub trait CueTransport: Send + Sync + std::fmt::Debug {
    async fn fire(
        &self,
        provider: &CueProvider,
        trigger: &TriggerName,
        request: &FireTrigger,
    ) -> Result<FireReply, Box<dyn Error + Send + Sync>>;
}

/// The coordinator of one run. It acts as this node, on behalf of the run's causes.
pub struct ServerCoordinator {
    client: Client,
    /// The name in the certificate.
    name: NodeName,
    cues: RunCues,
}

/// The cues of one run.
#[derive(Clone)]
pub struct RunCues {
    /// The causes to pass on with every firing, so that loops end.
    pub causes: Vec<Cause>,
    pub transport: Option<Arc<dyn CueTransport>>,
    /// The runtime that requests run on.
    pub runtime: Handle,
}

impl ServerCoordinator {
    pub fn new(client: Client, name: NodeName, cues: RunCues) -> Self {
        Self { client, name, cues }
    }
}

impl Coordinator for ServerCoordinator {
    fn fire(&self, firing: &Firing, cancellation: &Cancellation) -> Result<FireResult, StepError> {
        if firing.provider != CueProvider::Bunraku {
            return self.cues.fire_elsewhere(firing, cancellation);
        }
        let request = self.cues.request(firing);
        let what = format!("`{}` was not fired", firing.name);
        let sent = send_firing(&self.client, &firing.name, &request);
        let reply = self.cues.wait(cancellation, &what, sent)?;
        reply
            .map(|reply| fired(firing, &reply))
            .map_err(|error| failed(&what, error))
    }

    fn locks(&self) -> Result<&dyn FleetLocks, StepError> {
        Ok(self)
    }
}

impl FleetLocks for ServerCoordinator {
    fn state(
        &self,
        name: &LockName,
        session: &str,
        cancellation: &Cancellation,
    ) -> Result<LockState, StepError> {
        let what = cannot("read", name);
        let asked = self.client.call(ShowLock.at(name));
        match self.cues.wait(cancellation, &what, asked)? {
            Ok(status) => Ok(lock_state(&status, &self.name, session)),
            // Nobody has used this lock yet.
            Err(error) if error.status() == Some(NOT_FOUND) => Ok(LockState::Free),
            Err(error) => Err(failed(&what, error)),
        }
    }

    fn acquire(
        &self,
        request: &LockRequest,
        cancellation: &Cancellation,
    ) -> Result<LockAttempt, StepError> {
        let what = cannot("acquire", &request.name);
        let message = AcquireLock {
            session: request.session.clone(),
            lease_seconds: request.lease.as_secs().max(1),
            wait_seconds: 0,
            only_now: true,
            reason: request.reason.clone(),
            slots: None,
        };
        let at = endpoints::AcquireLock.at(&request.name);
        let asked = self.client.call_with(at, &message);
        match self.cues.wait(cancellation, &what, asked)? {
            Ok(LockReply::Held { .. }) => Ok(LockAttempt::Acquired),
            Ok(LockReply::Waiting { .. } | LockReply::Taken { .. }) => Ok(LockAttempt::Busy),
            Err(error) => Err(failed(&what, error)),
        }
    }

    fn renew(
        &self,
        name: &LockName,
        token: u64,
        cancellation: &Cancellation,
    ) -> Result<LockRenewal, StepError> {
        let what = cannot("renew", name);
        let message = LockToken { token };
        let asked = self.client.call_with(RenewLock.at(name), &message);
        match self.cues.wait(cancellation, &what, asked)? {
            Ok(()) => Ok(LockRenewal::Renewed),
            Err(error) if error.status() == Some(CONFLICT) => Ok(LockRenewal::Lost),
            Err(error) => Err(failed(&what, error)),
        }
    }

    fn release(
        &self,
        name: &LockName,
        token: u64,
        cancellation: &Cancellation,
    ) -> Result<(), StepError> {
        let what = cannot("release", name);
        let message = LockToken { token };
        let asked = self.client.call_with(ReleaseLock.at(name), &message);
        match self.cues.wait(cancellation, &what, asked)? {
            Ok(()) => Ok(()),
            Err(error) if error.status() == Some(CONFLICT) => Ok(()),
            Err(error) => Err(failed(&what, error)),
        }
    }
}

impl RunCues {
    /// Fires a cue without our servers. Blocks.
    pub fn fire_elsewhere(
        &self,
        firing: &Firing,
        cancellation: &Cancellation,
    ) -> Result<FireResult, StepError> {
        let request = self.request(firing);
        if firing.provider == CueProvider::Dummy {
            let reply = FireReply::Fired {
                hosts: request.hosts,
                unknown: Vec::new(),
            };
            return Ok(fired(firing, &reply));
        }
        let what = format!("`{}` was not fired", firing.name);
        let Some(transport) = &self.transport else {
            let why = "this program does not have that provider";
            return Err(StepError::because(what, why));
        };
        let sent = transport.fire(&firing.provider, &firing.name, &request);
        match self.wait(cancellation, &what, sent)? {
            Ok(reply) => Ok(fired(firing, &reply)),
            Err(error) => Err(StepError::because(what, error)),
        }
    }

    fn request(&self, firing: &Firing) -> FireTrigger {
        FireTrigger {
            id: FiringId(Uuid::now_v7()),
            hosts: firing.hosts.clone(),
            query: firing.query.clone(),
            ttl: firing.ttl,
            reason: firing.reason.clone(),
            deadline_seconds: firing.deadline.map(|span| span.as_secs()),
            causes: self.causes.clone(),
            // Only a change notifies a trigger.
            changed: true,
        }
    }

    /// Blocks until the request is done, the run is cancelled, or the time limit expires.
    fn wait<T>(
        &self,
        cancellation: &Cancellation,
        what: &str,
        request: impl Future<Output = T>,
    ) -> Result<T, StepError> {
        self.runtime.block_on(async {
            tokio::select! {
                done = tokio::time::timeout(PATIENCE, request) => done
                    .map_err(|_| StepError::because(what, "no reply within two minutes")),
                () = cancelled(cancellation) => Err(StepError::interrupted()),
            }
        })
    }
}

/// Resolves when the run should stop.
async fn cancelled(cancellation: &Cancellation) {
    let readable = cancellation.readable().try_clone_to_owned();
    match readable.and_then(Receiver::from_owned_fd) {
        // This fails only when the runtime ends, and the request ends with it.
        Ok(pipe) => drop(pipe.readable().await),
        // Without a spare file descriptor, the request runs to its end.
        Err(_) => std::future::pending().await,
    }
}

/// Sends a firing. It is idempotent: the same firing counts once, even if it is sent twice.
pub async fn send_firing(
    client: &Client,
    trigger: &TriggerName,
    request: &FireTrigger,
) -> Result<FireReply, ClientError> {
    let at = endpoints::FireTrigger.at(trigger);
    match client.call_with(&at, request).await {
        Err(ClientError::Lost { .. }) => client.call_with(at, request).await,
        other => other,
    }
}

fn fired(firing: &Firing, reply: &FireReply) -> FireResult {
    let unknown = match reply {
        FireReply::Fired { unknown, .. } => unknown.clone(),
        FireReply::Held { .. } | FireReply::Stopped { .. } => Vec::new(),
    };
    FireResult {
        message: firing_text(&firing.name, reply),
        unknown,
        stopped: matches!(reply, FireReply::Stopped { .. }),
    }
}

/// Describes the result of a firing in one sentence.
pub fn firing_text(trigger: &TriggerName, reply: &FireReply) -> String {
    match reply {
        FireReply::Fired { hosts, unknown } if hosts.is_empty() && unknown.is_empty() => {
            format!("{trigger} was fired")
        }
        FireReply::Fired { hosts, .. } => {
            format!("{trigger} was fired for {}", counted(hosts.len(), "host"))
        }
        FireReply::Held {
            until: Some(until), ..
        } => format!("{trigger} is held until {until:.0}"),
        // Nodes are not told more: other nodes may have fired it too.
        FireReply::Held { occurrences: 0, .. } => format!("{trigger} is held back by its limits"),
        FireReply::Held { occurrences, .. } => {
            let count = usize::try_from(*occurrences).unwrap_or(usize::MAX);
            format!("{trigger} is held after {}", counted(count, "occurrence"))
        }
        FireReply::Stopped { why, chain } => format!(
            "{trigger} was stopped: {}\n  {}",
            why.as_str(),
            chain_text(chain)
        ),
    }
}

/// Formats a chain of triggers: `web-1 fired refresh, then lb-1 fired reload`.
pub fn chain_text(chain: &[TriggerHop]) -> String {
    let hops = chain.iter().map(|hop| {
        let node = hop.node.as_ref().map_or("someone", NodeName::as_str);
        format!("{node} fired {}", hop.trigger)
    });
    hops.collect::<Vec<String>>().join(", then ")
}

/// Formats a count with its noun: `1 host`, `2 hosts`.
fn counted(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

fn lock_state(status: &LockStatus, name: &NodeName, session: &str) -> LockState {
    let mut holders = status.holders.iter();
    let own = holders.find(|holder| holder.owner == name.as_str() && holder.session == session);
    match own {
        Some(holder) => LockState::Own {
            token: holder.token,
        },
        None if status.holders.len() >= status.slots as usize => LockState::Others,
        None => LockState::Free,
    }
}

fn cannot(act: &str, name: &LockName) -> String {
    format!("cannot {act} the lock `{name}`")
}

fn failed(what: &str, error: ClientError) -> StepError {
    match error.hint() {
        Some(hint) => StepError::because(format!("{what} ({hint})"), error),
        None => StepError::because(what, error),
    }
}

#[cfg(test)]
mod tests {
    use bunraku_wire::api::locks::Holder;

    use super::*;

    fn status(slots: u32, holders: &[(&str, &str, u64)]) -> LockStatus {
        let holders = holders.iter().map(|(owner, session, token)| Holder {
            owner: (*owner).to_owned(),
            session: (*session).to_owned(),
            reason: None,
            since: jiff::Timestamp::UNIX_EPOCH,
            token: *token,
        });
        LockStatus {
            name: LockName::new("db").expect("a name"),
            slots,
            holders: holders.collect(),
            waiters: Vec::new(),
            on_change: None,
            may_hold: Vec::new(),
            may_see: Vec::new(),
        }
    }

    #[test]
    fn a_lock_is_a_nodes_own_only_by_name_and_session() {
        let web = NodeName::new("web-1").expect("a name");
        let check = |slots, holders: &[(&str, &str, u64)], expected| {
            assert_eq!(
                lock_state(&status(slots, holders), &web, "engine"),
                expected,
                "{holders:?}"
            );
        };
        check(1, &[], LockState::Free);
        check(1, &[("web-1", "engine", 3)], LockState::Own { token: 3 });
        check(1, &[("web-2", "engine", 3)], LockState::Others);
        check(2, &[("web-1", "puppet", 3)], LockState::Free);
        check(
            2,
            &[("web-2", "engine", 3), ("web-1", "engine", 5)],
            LockState::Own { token: 5 },
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_request_that_nobody_answers_ends_when_the_run_is_cancelled() {
        let cancellation = Cancellation::new().expect("a pipe");
        let cues = RunCues {
            causes: Vec::new(),
            transport: None,
            runtime: Handle::current(),
        };
        let run = cancellation.clone();
        let waiting = tokio::task::spawn_blocking(move || {
            cues.wait(&run, "nothing", std::future::pending::<()>())
        });
        cancellation.cancel();
        let error = waiting.await.expect("no panic").expect_err("interrupted");
        assert!(error.interrupted, "{error}");
    }
}
