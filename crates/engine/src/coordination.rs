//! Coordination with other nodes, for `trigger` and `lock` resources.
//!
//! The engine has no network. The caller that applies a catalog provides a
//! [`Coordinator`]. The agent's coordinator uses its connection to the servers. The one
//! of `bunraku apply` connects when a resource needs it. A run without a coordinator
//! refuses such resources when their turn comes.
//!
//! Rule: a read-only run (noop) can read and renew locks, which changes nothing.
//! Firing, acquiring and releasing need [`WriteAccess`](crate::WriteAccess).

use std::time::Duration;

use bunraku_model::{LockName, NodeName, TriggerName};

use crate::cancel::Cancellation;
use crate::change::StepError;

/// A connection to the other nodes of the fleet.
///
/// Calls block. They return early with [`StepError::interrupted`] when cancellation is
/// requested. They return an error when no answer arrives within two minutes: a server
/// that hangs must not hold up a run forever.
pub trait Coordinator: Send + Sync {
    /// Fires a trigger on behalf of this run, with the run's causes.
    fn fire(&self, firing: &Firing, cancellation: &Cancellation) -> Result<FireResult, StepError>;

    /// Returns the locks of the fleet.
    fn locks(&self) -> Result<&dyn FleetLocks, StepError>;
}

/// The locks of the fleet, as one node uses them. Calls block, as those of a [`Coordinator`].
pub trait FleetLocks {
    /// Returns the holder of a lock, from the point of view of this session.
    fn state(
        &self,
        name: &LockName,
        session: &str,
        cancellation: &Cancellation,
    ) -> Result<LockState, StepError>;

    /// Tries once to acquire a lock, without waiting.
    fn acquire(
        &self,
        request: &LockRequest,
        cancellation: &Cancellation,
    ) -> Result<LockAttempt, StepError>;

    /// Renews the lease of a lock.
    fn renew(
        &self,
        name: &LockName,
        token: u64,
        cancellation: &Cancellation,
    ) -> Result<LockRenewal, StepError>;

    /// Releases a lock. Succeeds if the token no longer holds the lock.
    fn release(
        &self,
        name: &LockName,
        token: u64,
        cancellation: &Cancellation,
    ) -> Result<(), StepError>;
}

/// A trigger to fire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Firing {
    pub name: TriggerName,
    /// The target nodes. If empty, the nodes that the trigger is defined for.
    pub hosts: Vec<NodeName>,
    /// A query that selects additional nodes.
    pub query: Option<String>,
    /// The maximum length of the chain of triggers that may follow.
    pub ttl: Option<u32>,
    pub reason: Option<String>,
    /// The time to wait for a node that is not connected.
    pub deadline: Option<Duration>,
    pub provider: CueProvider,
}

/// The transport of a cue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CueProvider {
    /// Our servers and the agents connected to them.
    Bunraku,
    /// Keys in etcd, for `bunraku trigger watch`.
    Etcd(EtcdKeys),
    /// The `mco` client.
    Mcollective,
    /// No transport: cues are dropped.
    Dummy,
}

/// The location of cues in etcd. Unset fields have the defaults of `bunraku trigger fire`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtcdKeys {
    pub endpoints: Vec<String>,
    pub prefix: Option<String>,
    pub ttl: Option<Duration>,
}

/// The result of a firing that was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FireResult {
    /// One sentence for the report.
    pub message: String,
    /// Hosts that are not known.
    pub unknown: Vec<NodeName>,
    /// True if the loop protection or a budget stopped it, so that nothing was fired.
    pub stopped: bool,
}

/// The holder of a lock, as seen from one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockState {
    /// This session, with this fencing token.
    Own {
        token: u64,
    },
    /// Other sessions hold all slots.
    Others,
    Free,
}

/// A lock to acquire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRequest {
    pub name: LockName,
    /// The holder's name, among holders with the same certificate.
    pub session: String,
    pub lease: Duration,
    pub reason: Option<String>,
}

/// The result of asking for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockAttempt {
    Acquired,
    Busy,
}

/// The result of renewing a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockRenewal {
    Renewed,
    /// The token no longer holds the lock.
    Lost,
}

/// A coordinator for runs without a fleet: every request fails.
#[derive(Clone, Copy, Debug)]
pub struct NoCoordinator;

impl Coordinator for NoCoordinator {
    fn fire(&self, _: &Firing, _: &Cancellation) -> Result<FireResult, StepError> {
        Err(no_fleet())
    }

    fn locks(&self) -> Result<&dyn FleetLocks, StepError> {
        Err(no_fleet())
    }
}

fn no_fleet() -> StepError {
    StepError::new("this run has no connection to other nodes")
}
