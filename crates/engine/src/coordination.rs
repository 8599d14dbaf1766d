//! Coordination with other nodes: what `trigger` and `lock` resources ask for.
//!
//! The engine has no network. Whoever applies a catalog provides a
//! [`Coordinator`]: the agent one that uses its connection to the servers,
//! `bunraku apply` one that connects when a resource needs it. A run without
//! one refuses such resources when their turn comes.
//!
//! Rule: a run that only looks (noop) can read and renew locks, which changes
//! nothing; firing, acquiring and releasing need [`Hands`](crate::Hands).

use std::time::Duration;

use bunraku_model::{LockName, NodeName, TriggerName};

use crate::cancel::Cancellation;
use crate::change::StepError;

/// A way to reach the other nodes of the fleet.
///
/// Calls block. They return early with [`StepError::interrupted`] when the
/// cancellation is requested, and with an error when nobody answers for two
/// minutes: a server that hangs must not hold up a run forever.
pub trait Coordinator: Send + Sync {
    /// Fires a trigger on behalf of this run, with the run's causes.
    fn fire(&self, firing: &Firing, cancellation: &Cancellation) -> Result<Fired, StepError>;

    /// Returns who holds a lock, from the point of view of this session.
    fn lock_standing(
        &self,
        name: &LockName,
        session: &str,
        cancellation: &Cancellation,
    ) -> Result<LockStanding, StepError>;

    /// Acquires a lock now or not at all.
    fn acquire_lock(
        &self,
        request: &LockRequest,
        cancellation: &Cancellation,
    ) -> Result<LockAttempt, StepError>;

    /// Renews the lease of a lock.
    fn renew_lock(
        &self,
        name: &LockName,
        token: u64,
        cancellation: &Cancellation,
    ) -> Result<LockRenewal, StepError>;

    /// Releases a lock. A lock that the token no longer holds is released already.
    fn release_lock(
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
    /// Without any, the nodes that the trigger is defined for.
    pub hosts: Vec<NodeName>,
    /// Every node that this query finds as well.
    pub query: Option<String>,
    /// The number of triggers that may follow, one from the other.
    pub ttl: Option<u32>,
    pub reason: Option<String>,
    /// How long to wait for a node that is not connected.
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
    /// Nothing at all.
    Dummy,
}

/// Where cues are written in etcd. What is not set has the defaults of `bunraku trigger fire`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtcdKeys {
    pub endpoints: Vec<String>,
    pub prefix: Option<String>,
    pub ttl: Option<Duration>,
}

/// The result of a firing that was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fired {
    /// One sentence for the report.
    pub message: String,
    /// Hosts that nobody knows.
    pub unknown: Vec<NodeName>,
}

/// Who holds a lock, seen from one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockStanding {
    /// This session, with this fencing token.
    Own {
        token: u64,
    },
    /// Others, in all slots.
    Others,
    Free,
}

/// A lock to acquire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRequest {
    pub name: LockName,
    /// The holder, among those with the same certificate.
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

impl NoCoordinator {
    fn refuse<T>() -> Result<T, StepError> {
        Err(StepError::new("this run has no connection to other nodes"))
    }
}

impl Coordinator for NoCoordinator {
    fn fire(&self, _: &Firing, _: &Cancellation) -> Result<Fired, StepError> {
        Self::refuse()
    }

    fn lock_standing(
        &self,
        _: &LockName,
        _: &str,
        _: &Cancellation,
    ) -> Result<LockStanding, StepError> {
        Self::refuse()
    }

    fn acquire_lock(&self, _: &LockRequest, _: &Cancellation) -> Result<LockAttempt, StepError> {
        Self::refuse()
    }

    fn renew_lock(&self, _: &LockName, _: u64, _: &Cancellation) -> Result<LockRenewal, StepError> {
        Self::refuse()
    }

    fn release_lock(&self, _: &LockName, _: u64, _: &Cancellation) -> Result<(), StepError> {
        Self::refuse()
    }
}
