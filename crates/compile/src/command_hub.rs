//! From the store's one stream of commands to many agents' streams.
//!
//! One watch per server, however many agents are connected: what it sees is
//! handed to the agents that are connected here. An agent subscribes first and
//! reads what waits afterwards, so nothing falls between the two; it may then
//! see a command twice, and [`Subscription::next`] leaves the second one out.

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

/// How long the watch waits before it asks a store again that was away.
const RETRY: Duration = Duration::from_millis(200);

/// Commands that may queue up for a slow connection before it has to start over.
const QUEUE: usize = 64;

/// What the hub tells a connected agent.
enum Signal {
    Command(Handed),
    /// The hub may have missed something: read what waits again.
    Reread,
    /// The node's target changed: look at the board.
    Target,
    /// A run has the node for itself, or does not any more: look at the holds.
    Hold,
    /// The servers of the cluster changed.
    Servers,
}

/// A command, and whether the board knows the node's newest target of its time.
struct Handed {
    envelope: Envelope,
    refreshed: bool,
}

/// What a subscription gives.
pub enum Told {
    Command {
        envelope: Box<Envelope>,
        /// The board knows every target of the node from before it was sent.
        refreshed: bool,
    },
    /// The node's target may have changed.
    Target,
    /// Who has the node for itself is to be told.
    Hold,
    /// The servers of the cluster changed.
    Servers,
}

/// Ids that a subscription remembers before it asks which of them still wait.
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

/// The handle on the hub.
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

    /// Ends the subscription of a node: its certificate was revoked, or it was removed.
    pub fn disconnect(&self, node: &NodeName) {
        self.subscribers().by_node.remove(node);
    }

    /// Tells a node's agent that its target changed, if it is connected here.
    /// One word is enough for any number of changes.
    pub fn tell_target(&self, node: &NodeName) {
        self.tell_once(node, Signal::Target, |waiting| {
            matches!(waiting, Signal::Target)
        });
    }

    /// Tells a node's agent who has the node for itself, if it is connected here.
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

    /// Tells every agent that is connected here that the servers changed.
    pub fn tell_servers(&self) {
        let same = |waiting: &Signal| matches!(waiting, Signal::Servers);
        self.subscribers()
            .by_node
            .retain(|_, subscriber| subscriber.signals.send_once(Signal::Servers, same));
    }

    /// Hands commands on until cancelled.
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

    /// A command of a node that is connected here.
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

    /// Targets come by another watch, which may be late: what was released before a run
    /// was asked for is looked for here, for all of them at once.
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
        // A connection that does not take its commands is ended; its agent
        // comes back and reads what waits.
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
    /// What is next, or nothing when a newer connection took over.
    pub async fn next(&mut self) -> Result<Option<Told>, ServiceError> {
        loop {
            if self.reread || self.delivered.len() > REMEMBERED {
                let pending = self.hub.commands.pending(&self.node).await?;
                // What does not wait any more was answered, so it cannot come again.
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
