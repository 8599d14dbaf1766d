//! Commands for nodes.
//!
//! A command is one key per node. It stays until the node's answer replaces it,
//! so an agent that was away, or that dies while it runs the command, gets it
//! again. The agent recognises an id that it has answered before. After its
//! deadline a command is no longer delivered and counts as expired.

use std::collections::HashMap;
use std::time::Duration;

use bunraku_model::{CommandId, NodeName};
use bunraku_store::{Compare, Settled, SharedStore, Transaction, WatchStart, settle};
use bunraku_wire::api::{
    CommandOutcome, CommandResult, CommandState, CommandStatus, Envelope, SendCommand, SentCommand,
};
use futures::StreamExt;
use jiff::Timestamp;
use uuid::Uuid;

use crate::clock::Clock;
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// Limits of the command service.
#[derive(Clone, Debug)]
pub struct CommandOptions {
    /// The most pending commands of a node. Further ones are refused.
    pub most_pending: usize,
    /// The number of answers kept per node.
    pub results_kept: usize,
}

impl Default for CommandOptions {
    fn default() -> Self {
        Self {
            most_pending: 1_000,
            results_kept: 50,
        }
    }
}

/// Commands per transaction: etcd accepts 128 operations, not counting compares and reads.
const PER_TRANSACTION: usize = 100;

/// The handle on the command service.
#[derive(Clone)]
pub struct Commands {
    pub(crate) store: SharedStore,
    pub(crate) clock: Clock,
    options: CommandOptions,
}

impl Commands {
    pub fn new(store: SharedStore, clock: Clock, options: CommandOptions) -> Self {
        Self {
            store,
            clock,
            options,
        }
    }

    /// Puts a command into the queue of each node. All nodes must exist.
    pub async fn send(
        &self,
        request: &SendCommand,
        by: &str,
    ) -> Result<Vec<SentCommand>, ServiceError> {
        let now = self.clock.now();
        let ttl = jiff::SignedDuration::try_from(Duration::from_secs(request.ttl_seconds))
            .map_err(|_| ServiceError::invalid("ttl_seconds is too large"))?;
        let expires = now
            .checked_add(ttl)
            .map_err(|_| ServiceError::invalid("ttl_seconds is too large"))?;
        self.refuse_full_queues(&request.nodes).await?;
        // Concurrently: the store combines pending transactions into one disk write.
        let chunks = request
            .nodes
            .chunks(PER_TRANSACTION)
            .map(|nodes| self.send_chunk(nodes, request, by, now, expires));
        // Wait for all of them: a commit that is dropped half-way may be written or not.
        let mut sent = Vec::with_capacity(request.nodes.len());
        let mut refused = None;
        for outcome in futures::future::join_all(chunks).await {
            match outcome {
                Ok(chunk) => sent.extend(chunk),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            None => Ok(sent),
            Some(error) => {
                self.withdraw(&sent).await?;
                Err(error)
            }
        }
    }

    /// Withdraws the commands that were sent when others could not be. A fast
    /// node may already have received its command.
    async fn withdraw(&self, sent: &[SentCommand]) -> Result<(), ServiceError> {
        for chunk in sent.chunks(PER_TRANSACTION) {
            let transaction = chunk.iter().fold(Transaction::new(), |transaction, sent| {
                transaction.delete(keys::command_pending(&sent.node, sent.id))
            });
            settle(&*self.store, transaction).await?;
        }
        Ok(())
    }

    async fn send_chunk(
        &self,
        nodes: &[NodeName],
        request: &SendCommand,
        by: &str,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<Vec<SentCommand>, ServiceError> {
        let mut transaction = Transaction::new();
        let mut sent = Vec::with_capacity(nodes.len());
        for node in nodes {
            let id = CommandId(Uuid::now_v7());
            let envelope = Envelope {
                id,
                command: request.command.clone(),
                sent_by: by.to_owned(),
                sent: now,
                expires,
            };
            let record = keys::node_record(node);
            transaction = transaction
                .when(Compare::Exists(record.clone()))
                .read_on_failure(record)
                .put(keys::command_pending(node, id), document::encode(&envelope));
            sent.push(SentCommand {
                node: node.clone(),
                id,
            });
        }
        match settle(&*self.store, transaction).await? {
            Settled::Committed => Ok(sent),
            Settled::Refused(records) => {
                let unknown = nodes
                    .iter()
                    .zip(records)
                    .find(|(_, record)| record.is_none());
                Err(match unknown {
                    Some((node, _)) => ServiceError::no_such_node(node),
                    None => ServiceError::conflict(
                        "the nodes changed in the meantime",
                        "send the command again",
                    ),
                })
            }
        }
    }

    /// Refuses nodes with a full queue. Reads all pending commands at once,
    /// however many nodes there are, because few commands are usually pending.
    async fn refuse_full_queues(&self, nodes: &[NodeName]) -> Result<(), ServiceError> {
        let prefix = match nodes {
            [node] => keys::command_pending_prefix(node),
            _ => keys::all_pending_commands(),
        };
        let mut waiting: HashMap<NodeName, usize> = HashMap::new();
        for key in document::keys_under(&*self.store, &prefix).await? {
            if let Some((node, _)) = keys::parse_pending_command(&key) {
                *waiting.entry(node).or_default() += 1;
            }
        }
        match nodes.iter().find(|node| {
            waiting
                .get(*node)
                .is_some_and(|count| *count >= self.options.most_pending)
        }) {
            None => Ok(()),
            Some(node) => {
                let message = format!(
                    "{} commands are already waiting for `{node}`",
                    self.options.most_pending
                );
                Err(ServiceError::Busy { message })
            }
        }
    }

    /// Returns a node's pending commands, oldest first, without expired ones.
    pub async fn pending(&self, node: &NodeName) -> Result<Vec<Envelope>, ServiceError> {
        let now = self.clock.now();
        let entries = document::read_all(&*self.store, &keys::command_pending_prefix(node)).await?;
        let mut pending = Vec::with_capacity(entries.len());
        for entry in &entries {
            let envelope: Envelope = document::decode(entry)?;
            if envelope.expires > now {
                pending.push(envelope);
            }
        }
        pending.sort_by_key(|envelope| (envelope.sent, envelope.id));
        Ok(pending)
    }

    /// Accepts a node's answer. Repeating the same answer changes nothing.
    pub async fn answer(
        &self,
        node: &NodeName,
        id: CommandId,
        result: &CommandResult,
    ) -> Result<(), ServiceError> {
        let pending = keys::command_pending(node, id);
        let transaction = Transaction::new()
            .when(Compare::Exists(pending.clone()))
            .delete(pending)
            .put(keys::command_result(node, id), document::encode(result));
        if settle(&*self.store, transaction).await?.is_committed() {
            self.forget_old_results(node).await?;
        }
        Ok(())
    }

    /// Returns the status of a command.
    pub async fn status(
        &self,
        node: &NodeName,
        id: CommandId,
    ) -> Result<CommandStatus, ServiceError> {
        // In this order: an answer replaces the pending command, so the second
        // read finds a command that is answered in between.
        let pending: Option<Versioned<Envelope>> =
            document::read(&*self.store, &keys::command_pending(node, id)).await?;
        let result: Option<Versioned<CommandResult>> =
            document::read(&*self.store, &keys::command_result(node, id)).await?;
        let state = match (result, pending.map(|pending| pending.document)) {
            (Some(result), _) => CommandState::Answered {
                result: result.document,
            },
            (None, Some(command)) if command.expires > self.clock.now() => {
                CommandState::Pending { command }
            }
            (None, Some(command)) => CommandState::Expired { command },
            (None, None) => {
                return Err(ServiceError::NotFound {
                    what: format!("command {id} of `{node}`"),
                    hint: Some(format!(
                        "only the last {} answers are stored",
                        self.options.results_kept
                    )),
                });
            }
        };
        Ok(CommandStatus {
            node: node.clone(),
            id,
            state,
        })
    }

    /// Returns the status of a command once it is answered, or when the time is up.
    pub async fn wait(
        &self,
        node: &NodeName,
        id: CommandId,
        most: Duration,
    ) -> Result<CommandStatus, ServiceError> {
        let answered = async {
            loop {
                // The watch is open before the read, so an answer in between wakes it.
                let mut changes = self
                    .store
                    .watch(&keys::command_result(node, id), WatchStart::Now)
                    .await?;
                let status = self.status(node, id).await?;
                if !matches!(status.state, CommandState::Pending { .. }) {
                    return Ok(status);
                }
                // On any change, or at the end of the watch: read again.
                if let Some(Err(error)) = changes.next().await {
                    return Err(ServiceError::from(error));
                }
            }
        };
        match tokio::time::timeout(most, answered).await {
            Ok(status) => status,
            Err(_) => self.status(node, id).await,
        }
    }

    /// Deletes commands that are past their deadline, and records them as expired.
    pub async fn expire_overdue(&self) -> Result<usize, ServiceError> {
        let now = self.clock.now();
        let mut expired = 0;
        for entry in document::read_all(&*self.store, &keys::all_pending_commands()).await? {
            let Some((node, id)) = keys::parse_pending_command(&entry.key) else {
                continue;
            };
            let envelope: Envelope = document::decode(&entry)?;
            if envelope.expires <= now {
                self.expire(&node, id).await?;
                expired += 1;
            }
        }
        Ok(expired)
    }

    /// Records a command as expired, unless it is answered.
    pub(crate) async fn expire(&self, node: &NodeName, id: CommandId) -> Result<(), ServiceError> {
        let result = CommandResult {
            outcome: CommandOutcome::Expired,
            message: "the node did not connect in time".to_owned(),
            finished: self.clock.now(),
        };
        self.answer(node, id, &result).await?;
        Ok(())
    }

    async fn forget_old_results(&self, node: &NodeName) -> Result<(), ServiceError> {
        let entries = document::read_all(&*self.store, &keys::command_result_prefix(node)).await?;
        let Some(surplus) = entries
            .len()
            .checked_sub(self.options.results_kept)
            .filter(|surplus| *surplus > 0)
        else {
            return Ok(());
        };
        let mut oldest = entries;
        oldest.sort_by_key(|entry| entry.modified);
        let transaction = oldest
            .iter()
            .take(surplus.min(PER_TRANSACTION))
            .fold(Transaction::new(), |transaction, entry| {
                transaction.delete(entry.key.clone())
            });
        settle(&*self.store, transaction).await?;
        Ok(())
    }
}
