//! Passes commands, targets and other news on to the streams of the agents that are connected
//! to this server.
//!
//! The agent feed feeds all streams from one watch, however many agents are connected.
//! An agent subscribes first and reads the pending commands afterwards, so it misses none. It
//! may then see a command twice; [`Subscription::next`] skips the second one.
//!
//! Invariant: when a subscription returns a run, the board knows every target of the node from
//! before the run was requested.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::{CommandId, NodeName};
use bunraku_store::KeyValue;
use bunraku_wire::api::{Command, Envelope};

use crate::{TargetBoard, signals};
use bunraku_control::document;
use bunraku_control::{Commands, ServiceError, keys};

/// Number of commands that may queue up for a slow connection before it must start over.
const QUEUE: usize = 64;

/// A message from the hub to a connected agent.
enum Signal {
    Command(Box<Envelope>),
    /// The hub may have missed something: read the pending commands again.
    Reread,
    /// The node's target changed: read the board.
    Target,
    /// A run reserved or released the node: read the holds.
    Hold,
    /// The servers of the cluster changed.
    Servers,
    /// The trusted CAs or the revocation list changed.
    Authority,
    /// The node's certificate was revoked.
    Revoked,
}

/// An item of a subscription.
pub enum SubscriptionItem {
    Command(Box<Envelope>),
    /// The node's target may have changed.
    Target,
    /// The agent must be notified which run has reserved the node.
    Hold,
    /// The servers of the cluster changed.
    Servers,
    /// The trusted CAs or the revocation list changed.
    Authority,
    /// The node's certificate was revoked: this is the last item.
    Revoked,
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
    queue: VecDeque<Box<Envelope>>,
    delivered: HashSet<CommandId>,
    reread: bool,
}

impl CommandHub {
    pub fn new(commands: Commands, board: TargetBoard) -> Self {
        Self {
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
            queue: VecDeque::new(),
            delivered: HashSet::new(),
            reread: true,
        }
    }

    /// Ends the subscription of a node whose certificate was revoked or that was removed.
    pub fn disconnect(&self, node: &NodeName) {
        if let Some(subscriber) = self.subscribers().by_node.remove(node) {
            // If there is no room, the stream ends without the reason.
            subscriber.signals.send(Signal::Revoked);
        }
    }

    /// Notifies a node's agent that its target changed, if it is connected
    /// here. One notification covers any number of changes.
    pub fn notify_target(&self, node: &NodeName) {
        self.notify_once(node, Signal::Target, |waiting| {
            matches!(waiting, Signal::Target)
        });
    }

    /// Notifies a node's agent of a change in who has reserved the node, if it
    /// is connected here.
    pub fn notify_hold(&self, node: &NodeName) {
        self.notify_once(node, Signal::Hold, |waiting| {
            matches!(waiting, Signal::Hold)
        });
    }

    fn notify_once(&self, node: &NodeName, signal: Signal, same: impl Fn(&Signal) -> bool) {
        let mut subscribers = self.subscribers();
        let Some(subscriber) = subscribers.by_node.get(node) else {
            return;
        };
        if !subscriber.signals.send_once(signal, same) {
            subscribers.by_node.remove(node);
        }
    }

    /// Notifies every agent that is connected here that the trusted CAs or the revocation list
    /// changed.
    pub fn notify_authority(&self) {
        let same = |waiting: &Signal| matches!(waiting, Signal::Authority);
        self.subscribers()
            .by_node
            .retain(|_, subscriber| subscriber.signals.send_once(Signal::Authority, same));
    }

    /// Notifies every agent that is connected here that the servers changed.
    pub fn notify_servers(&self) {
        let same = |waiting: &Signal| matches!(waiting, Signal::Servers);
        self.subscribers()
            .by_node
            .retain(|_, subscriber| subscriber.signals.send_once(Signal::Servers, same));
    }

    /// Returns the command, if its node is connected here.
    fn command_for_subscriber(&self, entry: &KeyValue) -> Option<(NodeName, Envelope)> {
        let (node, _) = keys::parse_pending_command(&entry.key)?;
        if !self.subscribers().by_node.contains_key(&node) {
            return None;
        }
        match document::decode::<Envelope>(entry) {
            Ok(envelope) => Some((node, envelope)),
            Err(error) => {
                tracing::error!(error = %error, "ignoring a command that cannot be read");
                None
            }
        }
    }

    /// Passes a pending command on, if its node is connected here.
    pub(crate) fn pass_on_command(&self, entry: &KeyValue) {
        let Some((node, envelope)) = self.command_for_subscriber(entry) else {
            return;
        };
        let mut subscribers = self.subscribers();
        let Some(subscriber) = subscribers.by_node.get(&node) else {
            return;
        };
        // End a connection that does not take its commands. Its agent
        // reconnects and reads the pending commands.
        let signal = Signal::Command(Box::new(envelope));
        if !subscriber.signals.send(signal) {
            subscribers.by_node.remove(&node);
        }
    }

    /// Has every subscription read its pending commands again.
    pub(crate) fn request_reread(&self) {
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
    /// Returns the next item, or nothing when a newer connection has taken over. After an
    /// error, the subscription is over: a run must not be passed on without its target.
    pub async fn next(&mut self) -> Result<Option<SubscriptionItem>, ServiceError> {
        loop {
            if self.reread || self.delivered.len() > REMEMBERED {
                self.read_pending().await?;
                self.reread = false;
            }
            while let Some(envelope) = self.queue.pop_front() {
                if self.delivered.insert(envelope.id) {
                    return Ok(Some(SubscriptionItem::Command(envelope)));
                }
            }
            match self.signals.recv().await {
                Some(Signal::Command(envelope)) => self.queue.push_back(envelope),
                Some(Signal::Reread) => self.reread = true,
                Some(Signal::Target) => return Ok(Some(SubscriptionItem::Target)),
                Some(Signal::Hold) => return Ok(Some(SubscriptionItem::Hold)),
                Some(Signal::Servers) => return Ok(Some(SubscriptionItem::Servers)),
                Some(Signal::Authority) => return Ok(Some(SubscriptionItem::Authority)),
                Some(Signal::Revoked) => return Ok(Some(SubscriptionItem::Revoked)),
                None => return Ok(None),
            }
        }
    }

    async fn read_pending(&mut self) -> Result<(), ServiceError> {
        let pending = self.hub.commands.pending(&self.node).await?;
        // These commands did not come through the feed, which may be behind. Reading the
        // target after them misses none from before them.
        if (pending.iter()).any(|envelope| matches!(envelope.command, Command::Run(_))) {
            self.hub.board.get_newest(&self.node).await?;
        }
        // A command that is no longer pending was answered, so it cannot come again.
        let waiting: HashSet<CommandId> = pending.iter().map(|envelope| envelope.id).collect();
        self.delivered.retain(|id| waiting.contains(id));
        self.queue.extend(pending.into_iter().map(Box::new));
        Ok(())
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
