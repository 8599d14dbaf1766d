//! Distributes the store's single stream of commands to the streams of many
//! agents.
//!
//! Each server has one watch, however many agents are connected. The hub passes
//! commands on to the agents that are connected here. An agent subscribes first
//! and reads the pending commands afterwards, so it misses none. It may then
//! see a command twice; [`Subscription::next`] skips the second one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{CommandId, NodeName};
use bunraku_store::{Change, Revision, SharedStore, StoreError, WatchStart};
use bunraku_wire::api::{Command, Envelope};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::{TargetBoard, signals};
use bunraku_control::document;
use bunraku_control::{Commands, ServiceError, keys};

/// Delay before the watch retries an unavailable store.
const RETRY: Duration = Duration::from_millis(200);

/// Number of commands that may queue up for a slow connection before it must start over.
const QUEUE: usize = 64;

/// A message from the hub to a connected agent.
enum Signal {
    Command(Handed),
    /// The hub may have missed something: read the pending commands again.
    Reread,
    /// The node's target changed: read the board.
    Target,
    /// A run reserved or released the node: read the holds.
    Hold,
    /// The servers of the cluster changed.
    Servers,
}

/// A command. `refreshed` is set if the board knows the node's newest target of that time.
struct Handed {
    envelope: Envelope,
    refreshed: bool,
}

/// An item of a subscription.
pub enum Told {
    Command {
        envelope: Box<Envelope>,
        /// The board knows every target of the node from before the command was sent.
        refreshed: bool,
    },
    /// The node's target may have changed.
    Target,
    /// The agent must be notified which run has reserved the node.
    Hold,
    /// The servers of the cluster changed.
    Servers,
}

/// Number of ids that a subscription remembers before it checks which are still pending.
const REMEMBERED: usize = 1_000;

struct Subscriber {
    ticket: u64,
    signals: signals::Sender<Signal>,
}

#[derive(Default)]
struct Subscribers {
    by_node: HashMap<NodeName, Subscriber>,
    next_ticket: u64,
}

/// Handle for the hub.
#[derive(Clone)]
pub struct CommandHub {
    store: SharedStore,
    commands: Commands,
    board: TargetBoard,
    subscribers: Arc<Mutex<Subscribers>>,
}

/// One agent's commands, for as long as it is the newest connection of its node.
pub struct Subscription {
    node: NodeName,
    ticket: u64,
    hub: CommandHub,
    signals: signals::Receiver<Signal>,
    queue: std::collections::VecDeque<Handed>,
    delivered: HashSet<CommandId>,
    reread: bool,
}

impl CommandHub {
    pub fn new(store: SharedStore, commands: Commands, board: TargetBoard) -> Self {
        Self {
            store,
            commands,
            board,
            subscribers: Arc::default(),
        }
    }

    /// Subscribes a node's agent. An older subscription of that node ends.
    pub fn subscribe(&self, node: &NodeName) -> Subscription {
        let (sender, signals) = signals::channel(QUEUE);
        let mut subscribers = self.subscribers();
        let ticket = subscribers.next_ticket;
        subscribers.next_ticket += 1;
        subscribers.by_node.insert(
            node.clone(),
            Subscriber {
                ticket,
                signals: sender,
            },
        );
        Subscription {
            node: node.clone(),
            ticket,
            hub: self.clone(),
            signals,
            queue: std::collections::VecDeque::new(),
            delivered: HashSet::new(),
            reread: true,
        }
    }

    /// Ends the subscription of a node whose certificate was revoked or that was removed.
    pub fn disconnect(&self, node: &NodeName) {
        self.subscribers().by_node.remove(node);
    }

    /// Notifies a node's agent that its target changed, if it is connected
    /// here. One notification covers any number of changes.
    pub fn tell_target(&self, node: &NodeName) {
        self.tell_once(node, Signal::Target, |waiting| {
            matches!(waiting, Signal::Target)
        });
    }

    /// Notifies a node's agent of a change in who has reserved the node, if it
    /// is connected here.
    pub fn tell_hold(&self, node: &NodeName) {
        self.tell_once(node, Signal::Hold, |waiting| {
            matches!(waiting, Signal::Hold)
        });
    }

    fn tell_once(&self, node: &NodeName, signal: Signal, same: impl Fn(&Signal) -> bool) {
        let mut subscribers = self.subscribers();
        let Some(subscriber) = subscribers.by_node.get(node) else {
            return;
        };
        if !subscriber.signals.send_once(signal, same) {
            subscribers.by_node.remove(node);
        }
    }

    /// Notifies every agent that is connected here that the servers changed.
    pub fn tell_servers(&self) {
        let same = |waiting: &Signal| matches!(waiting, Signal::Servers);
        self.subscribers()
            .by_node
            .retain(|_, subscriber| subscriber.signals.send_once(Signal::Servers, same));
    }

    /// Passes commands on until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut next: Option<Revision> = None;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.hand_on(&mut next) => match outcome {
                    Ok(()) => {}
                    Err(StoreError::Compacted { .. }) => next = None,
                    Err(error) => tracing::warn!(error = %error, "watching for commands failed; trying again"),
                },
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn hand_on(&self, next: &mut Option<Revision>) -> Result<(), StoreError> {
        let start = next.map_or(WatchStart::Now, WatchStart::At);
        let mut batches = self
            .store
            .watch(&keys::all_pending_commands(), start)
            .await?;
        if next.is_none() {
            self.tell_all_to_reread();
        }
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            let puts = batch.changes.iter().filter_map(|change| match change {
                Change::Put(entry) => self.concerned(entry),
                Change::Delete { .. } => None,
            });
            let sent: Vec<(NodeName, Envelope)> = puts.collect();
            let refreshed = self.refresh_targets(&sent).await;
            for (node, envelope) in sent {
                let handed = Handed {
                    envelope,
                    refreshed,
                };
                self.hand_on_command(&node, handed);
            }
            *next = Some(Revision(batch.revision.0 + 1));
        }
        Ok(())
    }

    /// Returns the command, if its node is connected here.
    fn concerned(&self, entry: &bunraku_store::KeyValue) -> Option<(NodeName, Envelope)> {
        let (node, _) = keys::parse_pending_command(&entry.key)?;
        if !self.subscribers().by_node.contains_key(&node) {
            return None;
        }
        match document::decode::<Envelope>(entry) {
            Ok(envelope) => Some((node, envelope)),
            Err(error) => {
                tracing::error!(error = %error, "a command cannot be read and is left out");
                None
            }
        }
    }

    /// Looks up targets that were released before a run was requested, for all
    /// nodes at once. Targets arrive through another watch, which may be late.
    async fn refresh_targets(&self, sent: &[(NodeName, Envelope)]) -> bool {
        let runs = (sent.iter())
            .filter(|(_, envelope)| matches!(envelope.command, Command::Run(_)))
            .map(|(node, _)| node.clone());
        let nodes: BTreeSet<NodeName> = runs.collect();
        let nodes: Vec<NodeName> = nodes.into_iter().collect();
        match self.board.refresh(&nodes).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(error = %error, "whether there are newer targets is asked again for each run");
                false
            }
        }
    }

    fn hand_on_command(&self, node: &NodeName, handed: Handed) {
        let mut subscribers = self.subscribers();
        let Some(subscriber) = subscribers.by_node.get(node) else {
            return;
        };
        // End a connection that does not take its commands. Its agent
        // reconnects and reads the pending commands.
        if !subscriber.signals.send(Signal::Command(handed)) {
            subscribers.by_node.remove(node);
        }
    }

    fn tell_all_to_reread(&self) {
        let mut subscribers = self.subscribers();
        subscribers
            .by_node
            .retain(|_, subscriber| subscriber.signals.send(Signal::Reread));
    }

    fn subscribers(&self) -> std::sync::MutexGuard<'_, Subscribers> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Returns the next item, or nothing when a newer connection has taken over.
    pub async fn next(&mut self) -> Result<Option<Told>, ServiceError> {
        loop {
            if self.reread || self.delivered.len() > REMEMBERED {
                let pending = self.hub.commands.pending(&self.node).await?;
                // A command that is no longer pending was answered, so it cannot come
                // again.
                let waiting: HashSet<CommandId> =
                    pending.iter().map(|envelope| envelope.id).collect();
                self.delivered.retain(|id| waiting.contains(id));
                self.queue
                    .extend(pending.into_iter().map(|envelope| Handed {
                        envelope,
                        refreshed: false,
                    }));
                self.reread = false;
            }
            while let Some(Handed {
                envelope,
                refreshed,
            }) = self.queue.pop_front()
            {
                if self.delivered.insert(envelope.id) {
                    let envelope = Box::new(envelope);
                    return Ok(Some(Told::Command {
                        envelope,
                        refreshed,
                    }));
                }
            }
            match self.signals.recv().await {
                Some(Signal::Command(handed)) => self.queue.push_back(handed),
                Some(Signal::Reread) => self.reread = true,
                Some(Signal::Target) => return Ok(Some(Told::Target)),
                Some(Signal::Hold) => return Ok(Some(Told::Hold)),
                Some(Signal::Servers) => return Ok(Some(Told::Servers)),
                None => return Ok(None),
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.hub.subscribers();
        if subscribers
            .by_node
            .get(&self.node)
            .is_some_and(|subscriber| subscriber.ticket == self.ticket)
        {
            subscribers.by_node.remove(&self.node);
        }
    }
}
