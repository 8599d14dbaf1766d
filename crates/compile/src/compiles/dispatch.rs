//! Assigns queued nodes to slots for as long as the server runs.
//!
//! Each environment may have as many active nodes as there are slots. The slots
//! themselves are shared, but no environment stays without one
//! ([`slots`](super::slots)). So an environment whose compiler hangs delays only
//! its own nodes, and no node that leaves it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bunraku_model::{EnvironmentName, NodeName};
use bunraku_store::{Change, Follow, FollowEvent, KeyValue, StoreError};
use bunraku_wire::api::CompileOutcome;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim::Claim;
use super::outcome::StoreOutcome;
use super::queue::QueueEntry;
use super::view::{QueueView, QueuedRequest};
use super::{Compiles, WorkLease};
use bunraku_control::document;
use bunraku_control::error::chain;
use bunraku_control::keys;

/// Delay before a node is retried after a failure that is not the code's fault.
const RETRY: Duration = Duration::from_secs(5);
/// Interval at which ages are updated.
const TICK: Duration = Duration::from_secs(1);

/// The reason why a node is free again.
enum CompileEnd {
    Done,
    /// Retry after a delay.
    Later,
}

/// A node that is being compiled.
struct RunningCompile {
    environment: EnvironmentName,
    /// Cancelled when the node has moved to another environment.
    moved: CancellationToken,
}

struct Dispatcher {
    compiles: Compiles,
    view: QueueView,
    under_way: HashMap<NodeName, RunningCompile>,
    later: HashMap<NodeName, Instant>,
    tasks: JoinSet<(NodeName, CompileEnd)>,
}

impl Compiles {
    /// Runs until cancelled. Even without slots of its own, it maintains the
    /// queue's metrics and wakes tasks that wait for the queue.
    pub async fn run(
        &self,
        mut lease: watch::Receiver<Option<WorkLease>>,
        shutdown: CancellationToken,
    ) {
        let mut dispatcher = Dispatcher {
            compiles: self.clone(),
            view: QueueView::default(),
            under_way: HashMap::new(),
            later: HashMap::new(),
            tasks: JoinSet::new(),
        };
        tokio::select! {
            () = dispatcher.run(&mut lease, &shutdown) => {}
            () = self.follow_locks() => {}
            () = self.follow_answers() => {}
        }
        // Stopping the tasks stops their work; the end of the lease frees the nodes.
        dispatcher.tasks.shutdown().await;
        self.close_own_attempts(dispatcher.under_way.keys()).await;
        drop(dispatcher);
        self.inner.compilers.clear();
    }

    /// Handles one node, from the claim to the stored outcome.
    async fn work(
        &self,
        node: &NodeName,
        requested: QueuedRequest,
        lease: &WorkLease,
        moved: &CancellationToken,
    ) -> CompileEnd {
        let started = Instant::now();
        let mut claim = match self.claim(node, requested, lease).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return CompileEnd::Done,
            Err(error) => {
                tracing::warn!(%node, error = %chain(&error), "cannot claim a node; retrying");
                return CompileEnd::Later;
            }
        };
        let outcome = {
            let work = self.compile_claimed(&mut claim, started);
            tokio::select! {
                // Another server may compile the node from now on.
                () = lease.lost.cancelled() => None,
                () = moved.cancelled() => {
                    tracing::info!(%node, "the node moved to another environment and is compiled there");
                    None
                }
                outcome = work => Some(outcome),
            }
        };
        let Some(outcome) = outcome else {
            self.try_to_give_back(&claim).await;
            return if moved.is_cancelled() {
                CompileEnd::Done
            } else {
                CompileEnd::Later
            };
        };
        let seconds = started.elapsed().as_secs_f64();
        match outcome {
            Ok(StoreOutcome::Lost) => CompileEnd::Later,
            Ok(StoreOutcome::Done(outcome)) => {
                self.inner.metrics.ended(outcome_name(&outcome), seconds);
                tracing::debug!(%node, outcome = outcome_name(&outcome), seconds, "compiled");
                CompileEnd::Done
            }
            Err(error) => {
                self.inner.metrics.ended("interrupted", seconds);
                tracing::warn!(%node, error = %chain(&error), "cannot compile now; retrying");
                self.try_to_give_back(&claim).await;
                CompileEnd::Later
            }
        }
    }

    async fn compile_claimed(
        &self,
        claim: &mut Claim,
        started: Instant,
    ) -> Result<StoreOutcome, super::CompileFailure> {
        let attempt = self.attempt(claim).await?;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let finished = self.finish(claim, attempt, took).await;
        finished.map_err(super::CompileFailure::temporary)
    }

    async fn try_to_give_back(&self, claim: &Claim) {
        let given_back = async {
            self.give_back(claim).await?;
            self.close_lost(claim).await
        };
        if let Err(error) = given_back.await {
            tracing::warn!(node = %claim.node, error = %chain(&error), "cannot release a claim; it expires with its lease");
        }
    }
}

fn outcome_name(outcome: &CompileOutcome) -> &'static str {
    match outcome {
        CompileOutcome::Compiled { changed: true, .. } => "changed",
        CompileOutcome::Compiled { changed: false, .. } => "unchanged",
        CompileOutcome::Failed {
            quarantined: true, ..
        } => "quarantined",
        CompileOutcome::Failed { .. } => "failed",
        CompileOutcome::NoCode => "no_code",
        CompileOutcome::NoFacts => "no_facts",
    }
}

impl Dispatcher {
    async fn run(
        &mut self,
        lease: &mut watch::Receiver<Option<WorkLease>>,
        shutdown: &CancellationToken,
    ) {
        let store = self.compiles.inner.store.clone();
        let mut queue = Follow::new(store.clone(), keys::COMPILE_QUEUE);
        let mut claims = Follow::new(store, keys::COMPILE_CLAIMS);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = self.later.values().min().copied();
            tokio::select! {
                () = shutdown.cancelled() => return,
                followed = queue.next() => self.queue_changed(followed).await,
                followed = claims.next() => self.claims_changed(followed).await,
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                _ = lease.changed() => {}
                _ = tick.tick() => self.measure(),
                () = sleep_until(wake) => self.later.retain(|_, at| *at > Instant::now()),
            }
            let current = lease.borrow_and_update().clone();
            if let Some(current) = current {
                self.hand_out(&current);
            }
        }
    }

    /// Fills the free slots.
    fn hand_out(&mut self, lease: &WorkLease) {
        let most = self.compiles.inner.options.concurrency;
        if most == 0 || lease.lost.is_cancelled() {
            return;
        }
        let mut busy: HashMap<&EnvironmentName, usize> = HashMap::new();
        for under_way in self.under_way.values() {
            *busy.entry(&under_way.environment).or_default() += 1;
        }
        let mut chosen = Vec::new();
        for environment in self.view.environments() {
            let free = most.saturating_sub(busy.get(&environment).copied().unwrap_or(0));
            let next = self.view.next(&environment, free, |node| {
                self.under_way.contains_key(node) || self.later.contains_key(node)
            });
            chosen.extend(next.into_iter().map(|next| (environment.clone(), next)));
        }
        for (environment, (node, requested)) in chosen {
            let moved = CancellationToken::new();
            let under_way = RunningCompile {
                environment,
                moved: moved.clone(),
            };
            self.under_way.insert(node.clone(), under_way);
            let (compiles, lease) = (self.compiles.clone(), lease.clone());
            self.tasks.spawn(async move {
                let ended = compiles.work(&node, requested, &lease, &moved).await;
                (node, ended)
            });
        }
        self.compiles.inner.metrics.running(self.under_way.len());
    }

    fn ended(&mut self, ended: Result<(NodeName, CompileEnd), tokio::task::JoinError>) {
        match ended {
            Ok((node, ended)) => {
                self.under_way.remove(&node);
                if let CompileEnd::Later = ended {
                    self.later.insert(node, Instant::now() + RETRY);
                }
            }
            Err(error) => {
                // The task's node is unknown: free all nodes once no task is left.
                tracing::error!(error = %error, "a compile task crashed");
                if self.tasks.is_empty() {
                    self.under_way.clear();
                }
            }
        }
        self.compiles.inner.metrics.running(self.under_way.len());
    }

    async fn queue_changed(&mut self, followed: Result<FollowEvent, StoreError>) {
        for (key, entry) in changes(followed).await {
            let Some(node) = keys::parse_node_below(keys::COMPILE_QUEUE, &key) else {
                continue;
            };
            match entry.map(|entry| (document::decode(&entry), entry.modified)) {
                None => self.view.remove(&node),
                Some((Ok(request), modified)) => {
                    // A new request may fix the cause of the delay.
                    self.later.remove(&node);
                    let request: QueueEntry = request;
                    let elsewhere = |it: &&RunningCompile| it.environment != request.environment;
                    if let Some(under_way) = self.under_way.get(&node).filter(elsewhere) {
                        under_way.moved.cancel();
                    }
                    self.view.put(node, request, modified);
                }
                Some((Err(error), _)) => {
                    tracing::error!(%node, error = %chain(&error), "cannot read a compile request");
                }
            }
        }
        let changes = &self.compiles.inner.changes;
        changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    async fn claims_changed(&mut self, followed: Result<FollowEvent, StoreError>) {
        for (key, entry) in changes(followed).await {
            let Some(node) = keys::parse_node_below(keys::COMPILE_CLAIMS, &key) else {
                continue;
            };
            match entry {
                Some(_) => self.view.claim(node),
                None => self.view.release(&node),
            }
        }
    }

    fn measure(&self) {
        let now = self.compiles.inner.clock.now();
        let depth: BTreeMap<u8, (usize, i64)> = self
            .view
            .depth()
            .into_iter()
            .map(|(priority, (count, since))| {
                (priority, (count, now.duration_since(since).as_secs()))
            })
            .collect();
        self.compiles.inner.metrics.queue(&depth);
    }
}

/// Returns each key with its newest value, or nothing if it was deleted.
async fn changes(followed: Result<FollowEvent, StoreError>) -> Vec<(String, Option<KeyValue>)> {
    match followed {
        Ok(FollowEvent::Snapshot { items, .. }) => items
            .into_iter()
            .map(|item| (item.key.clone(), Some(item)))
            .collect(),
        Ok(FollowEvent::Changes(batch)) => batch
            .changes
            .into_iter()
            .map(|change| match change {
                Change::Put(entry) => (entry.key.clone(), Some(entry)),
                Change::Delete { key } => (key, None),
            })
            .collect(),
        Err(error) => {
            tracing::warn!(error = %error, "cannot watch the compile queue; retrying");
            tokio::time::sleep(Duration::from_millis(500)).await;
            Vec::new()
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
